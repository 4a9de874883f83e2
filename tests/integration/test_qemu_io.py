"""qemu-io: writes, discards, zeroes and verifies patterns at unaligned offsets, with several requests in flight."""
import server

server.need('qemu-io')


class QemuIo(server.Test):
    def io(self, one, *commands, arguments=('-d', 'unmap')):
        words = [word for command in commands for word in ('-c', command)]
        out = self.command('qemu-io', '-f', 'raw', *arguments, *words, one.uri())
        self.assertNotIn('verification failed', out.lower())
        self.assertNotIn('error', out.lower() + self.errors.lower())
        return out

    def test_patterns(self):
        one = self.serve(size='256M')
        self.io(one, 'write -P 0x11 0 64M', 'read -P 0x11 0 64M', 'read -P 0 64M 64M',
                'write -P 0x22 12345 54321', 'read -P 0x22 12345 54321', 'read -P 0x11 0 12345', 'read -P 0x11 66666 1M',
                'write -P 0x33 268435455 1', 'read -P 0x33 268435455 1', 'flush')
        self.io(one, 'read -P 0x22 12345 54321', 'read -P 0x33 268435455 1', 'read -P 0x11 66666 60M')

    def test_discard(self):
        one = self.serve(size='256M')
        self.io(one, 'write -P 0x44 0 128M', 'discard 2M 64M', 'read -P 0 2M 64M', 'read -P 0x44 0 2M', 'read -P 0x44 66M 62M',
                'discard 100000000 777', 'write -P 0x55 3M 1M', 'read -P 0x55 3M 1M', 'read -P 0 2M 1M', 'read -P 0 4M 62M')

    def test_write_zeroes(self):
        one = self.serve(size='256M')
        for flags in ('-z', '-z -u', '-z -f', '-z -u -f'):
            self.io(one, 'write -P 0x66 0 32M', f'write {flags} 1M 16M', 'read -P 0x66 0 1M', 'read -P 0 1M 16M',
                    'read -P 0x66 17M 15M', f'write {flags} 20M 512', 'read -P 0 20M 512', 'read -P 0x66 20971008 512')
        out = self.command('qemu-io', '-f', 'raw', '-d', 'unmap', '-c', 'write -z -n 0 32M', one.uri(), status=None)
        self.assertTrue(self.status == 0 or 'not supported' in (out + self.errors).lower(), out + self.errors)

    def test_read_only(self):
        one = self.serve(size='64M', read_only=True)
        self.io(one, 'read -P 0 0 64M', arguments=('-r',))
        out = self.command('qemu-io', '-f', 'raw', '-c', 'write 0 512', one.uri(), status=1)
        self.assertRegex(out + self.errors, '(?i)read-only|permission denied')


if __name__ == '__main__':
    server.main()
