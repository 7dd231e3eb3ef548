package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
)

// Writer writes the lines that many workers report at the same time.
type Writer struct {
	mutex   sync.Mutex
	encoder *json.Encoder
	last    int64
	closers []func() error
	err     error
}

// Create begins a file. If its name ends in .gz, the file is compressed.
func Create(path string, header Header) (*Writer, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	buffer := bufio.NewWriter(file)
	writer := &Writer{closers: []func() error{buffer.Flush, file.Close}}
	var to io.Writer = buffer
	if strings.HasSuffix(path, ".gz") {
		packed := gzip.NewWriter(buffer)
		writer.closers = append([]func() error{packed.Close}, writer.closers...)
		to = packed
	}
	writer.encoder = json.NewEncoder(to)
	header.Format = Format
	writer.err = writer.encoder.Encode(header)
	return writer, nil
}

// Call writes a request before the client sends it, and returns the request's number.
func (writer *Writer) Call(line Line) int64 {
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	writer.last++
	line.ID, line.Event = writer.last, Call
	writer.write(line)
	return line.ID
}

// Write writes an answer or a fault.
func (writer *Writer) Write(line Line) {
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	writer.write(line)
}

func (writer *Writer) write(line Line) {
	if err := writer.encoder.Encode(line); writer.err == nil {
		writer.err = err
	}
}

// Close ends the file, and returns the first error of all writes.
func (writer *Writer) Close() error {
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	for _, closer := range writer.closers {
		if err := closer(); writer.err == nil {
			writer.err = err
		}
	}
	return writer.err
}

// Save writes a whole history.
func (history *History) Save(path string) error {
	writer, err := Create(path, history.Header)
	if err != nil {
		return err
	}
	lines := append([]Line{}, history.Faults...)
	for _, operation := range history.Operations {
		lines = append(lines, operation.Call)
		if operation.Answer.Time != Never {
			lines = append(lines, operation.Answer)
		}
	}
	sort.SliceStable(lines, func(a, b int) bool { return lines[a].Time < lines[b].Time })
	for _, line := range lines {
		writer.Write(line)
	}
	return writer.Close()
}
