#include "config/help_text.hpp"

namespace gpunbd::config::help_text {

const std::string_view program = R"(gpunbd - an NBD server that exports GPU memory as block devices

Usage: gpunbd COMMAND [FLAGS]

Nothing is persistent: what is written is gone when the server ends.

Commands:
  serve                  Serve exports to NBD clients.
  devices                List the host's memory and the GPUs that exports can use.
  check FILE             Validate a configuration file and print the effective one.

Flags:
  -h, --help             Show this, or, after a command, the help of the command.
      --version          Show the version.

Examples:
  gpunbd serve                           the first GPU's memory, on port 10809 of loopback
  gpunbd serve --size 8G --device cuda:0
  gpunbd serve --config /etc/gpunbd.yaml
  gpunbd check /etc/gpunbd.yaml

Exit codes: 0 done; 1 failed at run time; 2 wrong usage or configuration.
See also: gpunbd(8), gpunbd.yaml(5)
)";

const std::string_view serve = R"(gpunbd serve - serve exports to NBD clients

Usage: gpunbd serve [FLAGS]
       gpunbd serve --config FILE [--run COMMAND] [data path and log flags]

Without --config there is one export, which the flags describe. With no flags at all it is the
first GPU's free memory less a reserve or, without a GPU, 1 GiB of host memory.
SIZE is a number with K, M, G or T (binary; 1.5GiB works too), or plain bytes.

Export:
      --name NAME        Name that clients ask for; default: the empty name, NBD's default export.
      --size SIZE        Size, a multiple of 512 bytes, or a share of the devices' memory such as
                         50%; default 100%.
      --device ID        host, cuda:N, or auto (the first GPU, else the host); default auto.
                         Repeat it to spread the export over several devices.
      --layout KIND      How several devices are filled: linear, one after the other, or stripe,
                         all in turn; default linear.
      --stripe-size SIZE Bytes on one device before the next one's turn, a multiple of the page
                         size; default one page. Needs --layout stripe.
      --provision KIND   thin: memory is taken when it is first written; full: all of it at start;
                         default thin.
      --page-size SIZE   Unit of allocation, a power of two, 64K to 64M; default 2M.
      --reserve SIZE     Memory of each --device that is never taken; default: the device's own.
      --readonly         Refuse to write.
      --config FILE      Take exports and listeners from a YAML file, see gpunbd.yaml(5). Excludes
                         the flags above and those under Listeners.

Listeners:
  -p, --port PORT        TCP port, 1 to 65535; default 10809.
  -b, --bind ADDRESS     Numeric IPv4 or IPv6 address to listen on, repeatable; default 127.0.0.1
                         and ::1. 0.0.0.0 or :: is every interface.
  -U, --unix PATH        Unix socket to listen on, repeatable. Without -p and -b: no TCP then.
      --run COMMAND      Serve on a private Unix socket only, run COMMAND in a shell with $uri and
                         $unixsocket set, and exit with its status.

Data path:
      --threads N        Worker threads, 0 to 1024; default 0: one per core.
      --chunk-size SIZE  Bytes per copy of the pinned pipeline, a power of two, 64K to 16M;
                         default: calibrated at start.
      --slots N          Chunks of one transfer in flight on a device, 1 to 8; default 2.

Log:
      --log-level LEVEL  trace, debug, info, warn or error; default info.
      --log-format KIND  text or json; default text.
      --trace            Keep histograms of latencies; SIGUSR1 prints them.

  -h, --help             Show this.

Examples:
  gpunbd serve --size 8G --device cuda:0
  gpunbd serve --device cuda:0 --device cuda:1 --layout stripe --name fast
  gpunbd serve --size 1G --device host -U /run/gpunbd.sock
  gpunbd serve --size 2G --run 'nbdcopy disk.img "$uri" && nbdinfo --map "$uri"'
  gpunbd serve --config /etc/gpunbd.yaml --log-level debug

Exit codes: 0 ended by a signal, after clients were answered; 1 failed at run time; 2 wrong usage
or configuration. With --run: the status of COMMAND, or 128+n where signal n ended it.
)";

const std::string_view devices = R"(gpunbd devices - list the host's memory and the GPUs

Usage: gpunbd devices [--calibrate]

For each device: its id, name, total and free memory, PCI address and link, copy engines, and the
ways by which gpunbd can reach its memory.

Flags:
      --calibrate        Also measure the copies between host and device, and show the chunk size
                         that 'gpunbd serve' would choose. Takes a few seconds and some memory of
                         each GPU.
  -h, --help             Show this.

Examples:
  gpunbd devices
  gpunbd devices --calibrate

Exit codes: 0 done; 1 failed at run time; 2 wrong usage.
)";

const std::string_view check = R"(gpunbd check - validate a configuration file

Usage: gpunbd check FILE

Prints the effective configuration, defaults filled in, as YAML to standard output; or every problem
of the file as FILE:LINE:COLUMN: KEY: PROBLEM to standard error. Serves nothing.

Flags:
  -h, --help             Show this.

Examples:
  gpunbd check /etc/gpunbd.yaml

Exit codes: 0 the file is good; 2 it is not, or wrong usage. See also: gpunbd.yaml(5)
)";

}  // namespace gpunbd::config::help_text
