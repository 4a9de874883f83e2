"""SIGUSR2: the server continues when its successor has not answered for a minute. A file of its own, because CTest runs
others while it waits."""
import signal

import server
import test_upgrade

if server.SANITIZED:
    server.skip('the wait is the same with sanitizers')


class HangingSuccessor(test_upgrade.WithoutSuccessor):
    def test_the_successor_hangs(self):
        keeper, client = self.broken('#!/bin/sh\nexec sleep 1000\n')
        keeper.process.send_signal(signal.SIGUSR2)
        self.logged('to serve in place', keeper, 30)
        keeper.process.send_signal(signal.SIGUSR2)
        self.logged('is being started already', keeper, 30)
        client.write(0, b'while it hangs')
        client.write(5, b'before')
        self.refused(keeper, 1)
        self.logged('it did not answer in time', keeper)
        self.goes_on(keeper, client)


if __name__ == '__main__':
    server.main()
