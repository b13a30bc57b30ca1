package bench

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// Process is a process to measure, with a name for the results.
type Process struct {
	Name string
	PID  int
}

// use is what the processes have used so far, in the order of the configuration.
type use []procfs.ProcStat

// peaks returns the maximum memory of each process since its start, in bytes.
func (b *Bench) peaks() []uint64 {
	out := make([]uint64, len(b.cfg.Processes))
	for i, p := range b.cfg.Processes {
		if proc, err := procfs.NewProc(p.PID); err == nil {
			if status, err := proc.NewStatus(); err == nil {
				out[i] = status.VmHWM
			}
		}
	}
	return out
}

// usage reads the use of all configured processes and, last, of the bench itself.
func (b *Bench) usage() (use, error) {
	var out use
	for _, p := range append(b.cfg.Processes[:len(b.cfg.Processes):len(b.cfg.Processes)], Process{"bench", os.Getpid()}) {
		proc, err := procfs.NewProc(p.PID)
		if err != nil {
			return nil, fmt.Errorf("looking at process %s=%d: %w", p.Name, p.PID, err)
		}
		stat, err := proc.Stat()
		if err != nil {
			return nil, fmt.Errorf("looking at process %s=%d: %w", p.Name, p.PID, err)
		}
		out = append(out, stat)
	}
	return out, nil
}

// used adds what each process used between two readings: per task, and as a share of one core.
func (r *Result) used(b *Bench, before, after use, tasks int, seconds float64) {
	if len(b.cfg.Processes) == 0 {
		return
	}
	names := make([]string, 0, len(after))
	for _, p := range b.cfg.Processes {
		names = append(names, p.Name)
	}
	sum := 0.0
	for i, name := range append(names, "bench") {
		cpu := after[i].CPUTime() - before[i].CPUTime()
		if i < len(names) {
			sum += cpu
		}
		if tasks > 0 {
			r.figure("cpu_"+name+"_us_per_task", cpu*1e6/float64(tasks))
		}
		r.figure("cpu_"+name+"_percent", 100*cpu/seconds)
		r.figure("memory_"+name+"_mb", float64(after[i].ResidentMemory())/1e6)
	}
	for i, peak := range b.peaks() {
		r.figure("peak_"+names[i]+"_mb", float64(peak)/1e6)
	}
	if tasks > 0 {
		r.figure("cpu_us_per_task", sum*1e6/float64(tasks))
	}
}
