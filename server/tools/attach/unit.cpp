#include "server/tools/attach/unit.hpp"

#include <fmt/format.h>

namespace gpunbd::attach {
namespace {

// Quotes text for a unit file and escapes systemd's specifiers.
std::string quoted(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '%') out += c;
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

// Quotes a program path for ExecStart=, which also expands $.
std::string program_word(const std::string& path) {
    if (path.find_first_of(" \t\"'\\$%;") == std::string::npos) return path;
    std::string out;
    for (const char c : quoted(path)) out += c == '$' ? "$$" : std::string(1, c);
    return '"' + out + '"';
}

std::string flags_of(const AttachOptions& command) {
    std::string out;
    if (command.connections != 1) out += fmt::format(" --connections {}", command.connections);
    if (command.timeout) out += fmt::format(" --timeout {}", *command.timeout);
    if (command.dead_timeout) out += fmt::format(" --dead-timeout {}", *command.dead_timeout);
    if (command.block_size) out += fmt::format(" --block-size {}", *command.block_size);
    if (command.swap) out += " --swap";
    return out;
}

// At shutdown, units stop in the reverse of this order.
constexpr const char* disk_order =
    R"(# Order at shutdown: unmount the file systems with _netdev in /etc/fstab, stop LVM, detach this device, stop a local
# server and the network.
Before=remote-fs-pre.target blk-availability.service
Wants=remote-fs-pre.target
)";

// The privileges of a process that the kernel waits for.
constexpr const char* swap_rights = R"(# Swapped-out memory is lost if the process is killed.
SendSIGKILL=no
LimitRTPRIO=50
# CAP_SYS_PTRACE: to request read-ahead of the swapped-out memory of other processes before swapoff.
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_SYS_NICE CAP_SYS_PTRACE CAP_IPC_LOCK CAP_NET_ADMIN CAP_DAC_OVERRIDE
NoNewPrivileges=yes
DevicePolicy=closed
DeviceAllow=block-nbd rw
ProtectSystem=strict
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_VSOCK AF_NETLINK
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service @swap
SystemCallErrorNumber=EPERM
)";

}  // namespace

std::string systemd_unit(const AttachOptions& command, const std::string& program) {
    const std::string device = fmt::format("nbd{}", command.device);
    return fmt::format(
        R"(# /etc/systemd/system/{file}
[Unit]
Description={what} /dev/{device}
Documentation=man:gpunbd(8)
Wants=network-online.target modprobe@nbd.service
After=network-online.target modprobe@nbd.service gpunbd.service
{order}
[Service]
Type=notify
NotifyAccess=main
Environment="URI={uri}"
ExecStart={program} attach{flags} ${{URI}} /dev/{device}
Restart=on-failure
RestartSec=5
# A usage error is permanent.
RestartPreventExitStatus=2
# Stopping waits until the device is not in use and swap is disabled. At shutdown it unmounts the device first, and
# disconnects it after two minutes without progress.
TimeoutStopSec=infinity
KillMode=mixed
LimitMEMLOCK=infinity
OOMScoreAdjust=-1000
{rights}
[Install]
WantedBy=multi-user.target
)",
        fmt::arg("file", command.swap ? fmt::format("gpunbd-swap@{}.service", device)
                                      : fmt::format("gpunbd-attach-{}.service", device)),
        fmt::arg("what", command.swap ? "Swap on" : "NBD device"), fmt::arg("device", device),
        fmt::arg("order", command.swap ? "" : disk_order), fmt::arg("uri", quoted(command.uri)),
        fmt::arg("program", program_word(program)), fmt::arg("flags", flags_of(command)),
        fmt::arg("rights", command.swap ? swap_rights : ""));
}

}  // namespace gpunbd::attach
