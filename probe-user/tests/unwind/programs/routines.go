// Goroutines that calculate, sort, allocate, wait for channels, locks, timers and files, and go
// into system calls, so that stacks of all these kinds can be taken.
package main

import (
	"compress/flate"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var total uint64

type shape interface {
	area(depth int) float64
}

type square struct{ side float64 }

func (s square) area(int) float64 { return s.side * s.side }

type group struct{ parts []shape }

func (g group) area(depth int) float64 {
	sum := 0.0
	for _, part := range g.parts {
		sum += part.area(depth + 1)
	}
	return sum
}

func build(depth int) shape {
	if depth == 0 {
		return square{rand.Float64()}
	}
	parts := make([]shape, 3)
	for i := range parts {
		parts[i] = build(depth - 1)
	}
	return group{parts}
}

func shapes() {
	for {
		atomic.AddUint64(&total, uint64(build(6).area(0)))
	}
}

func sorts() {
	for {
		words := make([]string, 2000)
		for i := range words {
			words[i] = strings.Repeat("x", rand.Intn(20))
		}
		sort.Slice(words, func(a, b int) bool { return words[a] < words[b] })
	}
}

func packs() {
	text := bytes.Repeat([]byte("one and another "), 5000)
	for {
		var packed bytes.Buffer
		writer, _ := flate.NewWriter(&packed, 6)
		writer.Write(text)
		writer.Close()
		atomic.AddUint64(&total, uint64(packed.Len()))
	}
}

func reads() {
	for {
		text, _ := os.ReadFile("/proc/self/status")
		atomic.AddUint64(&total, uint64(len(text)))
		time.Sleep(time.Millisecond)
	}
}

func panics() {
	for {
		func() {
			defer func() { recover() }()
			var none map[string]int
			none["x"] = rand.Int()
		}()
	}
}

func main() {
	numbers := make(chan int)
	var lock sync.Mutex
	for _, work := range []func(){shapes, sorts, packs, reads, panics} {
		go work()
	}
	for i := 0; i < 4; i++ {
		go func() {
			for number := range numbers {
				lock.Lock()
				atomic.AddUint64(&total, uint64(number))
				lock.Unlock()
			}
		}()
	}
	fmt.Println("ready")
	for {
		numbers <- rand.Int()
		time.Sleep(100 * time.Microsecond)
	}
}
