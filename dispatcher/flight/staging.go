package flight

// staging counts what the tasks in memory take with their bodies, and says for how many more there is room. Each task knows
// whether it is counted, so that it counts once, however often it is added or removed.
type staging struct {
	maxTasks, maxBytes int
	tasks, bytes       int
}

// add counts a task whose body is in memory.
func (s *staging) add(t *Task) {
	if t.counted {
		return
	}
	t.counted = true
	s.tasks++
	s.bytes += t.size
}

// remove forgets what is counted for a task, and reports whether that was anything.
func (s *staging) remove(t *Task) bool {
	if t.content == nil || !t.counted {
		return false
	}
	t.counted = false
	s.tasks--
	s.bytes -= t.size
	return true
}

func (s *staging) room() (tasks, bytes int) { return s.maxTasks - s.tasks, s.maxBytes - s.bytes }

// scarce says that the last tenth of the room is reached, at least one task's, which what is read ahead leaves to what is due.
func (s *staging) scarce() bool {
	tasks, bytes := s.room()
	return tasks <= max(s.maxTasks/10, 1) || bytes <= s.maxBytes/10
}
