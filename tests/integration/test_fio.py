"""fio's nbd engine with verification: random reads and writes, several jobs, and trims."""
import subprocess

import server

server.need('fio')
if 'nbd' not in subprocess.run(['fio', '--enghelp'], capture_output=True, text=True, check=False).stdout.split():
    server.skip('this fio has no nbd engine')


class Fio(server.Test):
    def fio(self, one, *options):
        self.command('fio', '--ioengine=nbd', f'--uri={one.uri()}', '--verify=crc32c', '--verify_fatal=1',
                     '--group_reporting', '--randrepeat=1', *options, cwd=self.directory())

    def test_several_jobs(self):
        self.fio(self.serve(size='256M'), '--name=jobs', '--rw=randrw', '--bsrange=512-256k', '--bs_unaligned=1',
                 '--iodepth=16', '--numjobs=4', '--size=64M', '--offset_increment=64M')

    def test_trims(self):
        """Several jobs mix trims, reads and writes without errors."""
        one = self.serve(size='256M')
        self.command('fio', '--ioengine=nbd', f'--uri={one.uri()}', '--name=trims', '--rw=randtrimwrite', '--bs=64k',
                     '--iodepth=16', '--numjobs=2', '--size=128M', '--offset_increment=128M', cwd=self.directory())


if __name__ == '__main__':
    server.main()
