"""Runs on a host.

Accepts connections from others, and connects to them. check_hosts.py sends it as text.

Usage: contact ADDRESS TOKEN. Prints ``port NUMBER``, or ``error WHY``. Sends TOKEN to each client.
Reads ``NUMBER ADDRESS PORT TOKEN`` from standard input, connects to each at once, and prints
``tried NUMBER WHY``, without WHY if that token came back. Ends with its standard input, or after 30
s.

Needs Python 3.6, and nothing of fabbench.
"""

import os
import socket
import sys
import threading

_LIFETIME_S = 30.0
_TIMEOUT_S = 3.0


def _try_connection(number: str, address: str, port: str, token: str) -> None:
    """Connect, and print why the other host did not answer with the token; nothing if it did."""
    why = ""
    how = "no answer"  # How far it came, if the time runs out
    try:
        with socket.create_connection((address, int(port)), _TIMEOUT_S) as peer:
            how = "connected, but nothing came back"
            greeting = peer.recv(len(token) + 2)  # Its newline, and one more: too much shows
        if greeting != f"{token}\n".encode():
            why = "another program answered"
    except socket.timeout:  # noqa: UP041 - not yet TimeoutError in Python 3.6
        why = f"{how} in {_TIMEOUT_S:g} s"
    except OSError as error:
        why = error.strerror or str(error)
    text = f"tried {number} {why}".rstrip()
    os.write(1, f"{text}\n".encode())  # in one piece: threads print


def _greet(listener: socket.socket, token: str) -> None:
    while True:
        peer, _ = listener.accept()
        peer.sendall(token.encode() + b"\n")
        peer.close()


def main(address: str, token: str) -> None:
    """Listen, and serve the requests on standard input, until the end.

    Whoever connects gets `token`: so it is known that this process answered. Prints the port, or an
    error, and then a line for each request: NUMBER ADDRESS PORT TOKEN.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listener.bind((address, 0))  # any free port
        listener.listen(1 << 16)
    except OSError as error:
        os.write(1, f"error {error.strerror}\n".encode())
        return
    port = listener.getsockname()[1]
    os.write(1, f"port {port}\n".encode())
    threading.Thread(target=_greet, args=(listener, token), daemon=True).start()
    # If the connection to fabbench breaks unnoticed, standard input never ends.
    ending = threading.Timer(_LIFETIME_S, os._exit, (0,))
    ending.daemon = True
    ending.start()
    for line in sys.stdin:
        threading.Thread(target=_try_connection, args=line.split(), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
