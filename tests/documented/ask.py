"""Has one command run by the loaded product, with this process's files: SOCKET PROGRAM WORD ..."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    told = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(asked, [len(told).to_bytes(4, "big")], [0, 1, 2])
    asked.sendall(told)
    sys.exit(int(asked.recv(16) or b"1"))
