"""Host memory with spill memory is given back while programs wait for memory, as the kernel reports. `vm.pressure` tests this
in a guest."""
import contextlib
import os

import server


def thread_names(pid):
    names = []
    for thread in os.listdir(f'/proc/{pid}/task'):
        with contextlib.suppress(OSError), open(f'/proc/{pid}/task/{thread}/comm', encoding='ascii') as file:
            names.append(file.read().strip())
    return names


def accepts_triggers():
    """Whether the kernel accepts a trigger of this process."""
    with contextlib.suppress(OSError), open('/proc/pressure/memory', 'r+b', buffering=0) as file:
        file.write(b'some 300000 2000000\0')
        return True
    return False


class MemoryPressure(server.Test):
    def test_it_is_watched_or_the_log_has_the_reason(self):
        one = self.serve(config='''
listeners: {unix: [{path: '{socket}'}]}
devices: [{id: host, spill: [{file: '{directory}/spill', size: 64M}]}]
exports: [{name: '', size: 64M, devices: [host]}]
''')
        server.wait_for_text('ready: ', one.log)  # the line with the reason precedes this one
        watched = 'pressure watch' in thread_names(one.process.pid)
        self.assertEqual(watched, 'host: memory pressure is not noticed' not in one.log(), one.log())
        if accepts_triggers():
            self.assertTrue(watched, one.log())

    def test_devices_without_spill_memory_are_not_watched(self):
        self.assertNotIn('pressure watch', thread_names(self.serve().process.pid))


if __name__ == '__main__':
    server.main()
