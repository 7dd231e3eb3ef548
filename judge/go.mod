module palisade/judge

go 1.19

require github.com/anishathalye/porcupine v1.3.1

require golang.org/x/sys v0.20.0
