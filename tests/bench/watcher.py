#!/usr/bin/env python3
"""Sends the requests of Prometheus and of an open page to the admin socket of a gpunbd server, each second.

`watcher.py SOCKET EXPORT`, until it is killed. Prints "watching" when all of them have been answered once.
"""

import json
import select
import sys
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import admin  # noqa: E402: its folder is added to the path above


def ask(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}: {body[:200]}")
    return body


def main():
    path, export = sys.argv[1:]
    stream = admin.Connection(path)
    stream.request("GET", "/api/v1/stream")
    ticks = stream.getresponse()
    if ticks.status != 200:
        raise SystemExit(f"the stream: {ticks.status}")
    pages = admin.Connection(path)
    while not any(each["name"] == export for each in json.loads(ask(pages, "/api/v1/exports"))):
        time.sleep(0.1)  # its listeners exist before its exports
    asked = ["/metrics", f"/api/v1/map?export={urllib.parse.quote(export)}&cells=1024"]
    said = False
    begin = time.monotonic()
    while True:
        for each in asked:
            ask(pages, each)
        if not said:
            print("watching", flush=True)
            said = True
        begin += 1
        while (left := begin - time.monotonic()) > 0:
            if select.select([stream.sock or ticks.fp], [], [], left)[0] and not ticks.read1(1 << 20):
                raise SystemExit("the stream has ended")


if __name__ == "__main__":
    main()
