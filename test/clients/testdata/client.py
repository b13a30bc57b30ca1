# Uses the generated client as a program of somebody else would.
import sys
import time

from client import Client
from client.api.default import cancel_task_by_path, get_task, list_tasks, schedule_task
from client.models import Event, Schedule, SchedulePriority, Task, Tasks

c = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
scheduled = schedule_task.sync(client=c, wait="20s", body=Schedule(topic="orders", id="a-1", delay="1h", priority=SchedulePriority.HIGH))
assert isinstance(scheduled, Event) and scheduled.request, scheduled
task = get_task.sync("orders", "a-1", client=c)
assert isinstance(task, Task) and task.state == "pending", task
found = list_tasks.sync(client=c, topic="orders", from_=str(int(time.time() * 1000)))
assert isinstance(found, Tasks) and len(found.tasks) == 1, found
cancelled = cancel_task_by_path.sync("orders", "a-1", client=c, wait="20s")
assert isinstance(cancelled, Event), cancelled
print(cancelled.state)
