"""Selects the kernel that has ublk for the guests of a test, if there is one. Import it before test_kernel_client."""
import os
import subprocess

WITH_UBLK = dict(os.environ, GPUNBD_VM_KERNEL='ublk')
KERNEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'kernel.sh')
if subprocess.run([KERNEL, 'find'], env=WITH_UBLK, capture_output=True, check=False).returncode == 0:
    os.environ.update(WITH_UBLK)
