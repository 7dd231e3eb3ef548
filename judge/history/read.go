package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

const longestLine = 1 << 20

// Load reads a file; one whose name ends in .gz is unpacked.
func Load(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var reader io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if reader, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w: record it again", path, err)
		}
	}
	read, err := Read(reader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return read, nil
}

// Read reads a history. It adds an answer of the kind Unknown to each request without one.
func Read(reader io.Reader) (*History, error) {
	scanner := bufio.NewScanner(reader)
	scanner.Buffer(nil, longestLine)
	read := &History{}
	type id struct {
		process int
		number  int64
	}
	open := map[id]int{}
	for number := 1; scanner.Scan(); number++ {
		if number == 1 {
			if err := json.Unmarshal(scanner.Bytes(), &read.Header); err != nil || read.Header.Format != Format {
				return nil, fmt.Errorf("line 1 is no header of format %d: is this a history?", Format)
			}
			continue
		}
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d is no JSON object (%w): the file is damaged", number, err)
		}
		request := id{line.Process, line.ID}
		index, isOpen := open[request]
		switch {
		case line.Event == Fault:
			read.Faults = append(read.Faults, line)
		case line.Event == Call && isOpen:
			return nil, fmt.Errorf("line %d: request %d was not answered yet: give each request a number of its own", number, line.ID)
		case line.Event == Call:
			open[request] = len(read.Operations)
			read.Operations = append(read.Operations, Operation{line, Line{Time: Never, Event: Unknown}})
		case !isOpen:
			return nil, fmt.Errorf("line %d answers request %d, which is not open: write the request first", number, line.ID)
		default:
			delete(open, request)
			read.Operations[index].Answer = line
		}
	}
	return read, scanner.Err()
}
