import http.server
import sys
import threading
import time


def add(count):
    """One call into the interpreter's own C code, which keeps the lock to its end."""
    return sum(range(count))


def per_millisecond():
    times = []
    for _ in range(5):
        began = time.perf_counter()
        add(200_000)
        times.append(time.perf_counter() - began)
    return int(200_000 / min(times) / 1000)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_PUT(self):
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
            comm.write("report-maker")
        add(int(self.path[1:]) * RATE)
        self.do_GET()

    def log_message(self, *_):
        pass


RATE = per_millisecond()
# A thread that waits for the lock asks again as often. More seldom, fewer find it free by chance,
# of whom nothing shows from whom they took it over, and fewer wake-ups are there to be missed.
sys.setswitchinterval(0.15)
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
