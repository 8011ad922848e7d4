"""Units leased over HTTP to worker processes that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def _spawn_worker(controller_url: str, slots: int, index: int, log_dir: Path) -> subprocess.Popen:
    log_dir.mkdir(parents=True, exist_ok=True)
    log_file = (log_dir / f"worker_{index}.log").open("w")
    cmd = [sys.executable, "-m", "tau2.runner.worker", "--controller", controller_url]
    cmd += ["--slots", str(slots), "--worker-id", f"local-{index}"]
    return subprocess.Popen(cmd, stdout=log_file, stderr=subprocess.STDOUT, env=os.environ.copy())


def drive_batches(config: Any, units: list[Any], *, workers: int, slots: int) -> list[Any]:
    left, done, lock = list(units), [], threading.Lock()
    all_started = threading.Barrier(workers * slots)  # or the first worker would have done all

    class Leases(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/lease" and len(left) == len(units):
                all_started.wait(60)
            with lock:
                if self.path == "/complete":
                    done.append(body)
                unit = left.pop(0) if self.path == "/lease" and left else None
            answer = json.dumps({"unit": unit, "config": vars(config)}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Leases)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    folder = Path(os.environ["TAU2_DATA_DIR"]) / "workers"
    processes = [_spawn_worker(url, slots, index, folder) for index in range(workers)]
    for process in processes:
        process.wait()
    server.shutdown()
    return done
