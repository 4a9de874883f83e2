"""A measurement in a QEMU guest of 2 CPUs, whose init is a script of tests/vm/init."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../vm'))

import test_kernel_client as vm  # noqa: E402
import server  # noqa: E402


class Guest(server.Test):
    """A subclass has `init`, the name of the script, `parameters` for the guest's kernel, and report(), which gets the output."""
    programs = modules = ()  # of this machine, beside gpunbd
    memory = 3072

    def runTest(self):
        initramfs = vm.Initramfs(os.path.join(self.directory(), 'root'), self.init)
        initramfs.programs(*self.programs)
        initramfs.program(server.PROGRAM, 'gpunbd')
        shutil.copy(os.path.join(os.path.dirname(server.PROGRAM), 'memory_hog'), os.path.join(initramfs.root, 'bin/memory_hog'))
        initramfs.modules(*self.modules)
        append = ' '.join(f'{name}={value}' for name, value in self.parameters.items() if value != '')
        done = self.command(*vm.machine(self, initramfs, append=append, memory=self.memory), seconds=3600)
        if 'RESULT figures ok' not in done:
            self.fail(done[-4000:])
        self.report(done)


def main():
    sys.argv = sys.argv[:1]
    server.main()
