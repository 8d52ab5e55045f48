#!/usr/bin/python3
"""Runs in the guest as a service: executes commands that the host sends over a virtio port, in order.

A request is a line of JSON, {"command": shell text, "timeout": seconds}, the answer another, {"code": exit code, "output": both
streams}. The first line is {"uptime": seconds since the kernel's start}. A command that takes too long is killed, with code 124.
"""

import json
import os
import signal
import subprocess
import tempfile
import time

PORT = "/dev/virtio-ports/agent"
OUTPUT_BYTES_MAX = 200_000


def send(port, answer):
    """Writes one line whole."""
    data = (json.dumps(answer) + "\n").encode()
    while data:
        data = data[os.write(port, data) :]


def run(command, timeout_s):
    """(code, output) of a command. Output goes through a file, so that background processes do not delay the answer."""
    with tempfile.TemporaryFile(dir="/run") as output:
        process = subprocess.Popen(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - OUTPUT_BYTES_MAX))
        return code, output.read().decode("utf-8", "replace")


def main():
    """Serves for ever."""
    # udev makes the link a moment after loading the module.
    while not os.path.exists(PORT):
        time.sleep(0.1)
    port = os.open(PORT, os.O_RDWR)
    send(port, {"uptime": time.clock_gettime(time.CLOCK_BOOTTIME)})
    pending = b""
    while True:
        piece = os.read(port, 1 << 16)
        if not piece:
            time.sleep(0.1)
            continue
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            request = json.loads(line)
            code, output = run(request["command"], request["timeout"])
            send(port, {"code": code, "output": output})


if __name__ == "__main__":
    main()
