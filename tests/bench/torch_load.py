"""The same load as `gpu_load compute`, with PyTorch: repeats a bf16 matrix product of 8192 x 8192."""
import sys
import time

import torch

SIDE, WINDOW = 8192, 0.1

device = torch.device(f"cuda:{sys.argv[1] if len(sys.argv) > 1 else 0}")
left, right = (torch.randn(SIDE, SIDE, device=device, dtype=torch.bfloat16) for _ in range(2))
out = torch.empty_like(left)
begin, done, pending = time.monotonic(), 0, []
while True:
    torch.matmul(left, right, out=out)
    event = torch.cuda.Event()
    event.record()
    pending.append(event)
    if len(pending) < 4:
        continue
    pending.pop(0).synchronize()
    done += 1
    end = time.monotonic()
    if end - begin >= WINDOW:
        print(f"{end:.6f} {end - begin:.6f} {2e-12 * SIDE ** 3 * done / (end - begin):.6g}", flush=True)
        begin, done = end, 0
