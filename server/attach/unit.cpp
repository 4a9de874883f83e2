#include "server/attach/units.hpp"

#include <fmt/format.h>

#include "server/attach/swap.hpp"

namespace gpunbd::attach {
namespace {

// As one word of a command in a unit: in quotes, and without what systemd would replace.
std::string unit_word(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '%' || c == '$') out += c;
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

std::string flags_of(const config::AttachCommand& command) {
    std::string out;
    if (command.connections != 1) out += fmt::format(" --connections {}", command.connections);
    if (command.timeout) out += fmt::format(" --timeout {}", *command.timeout);
    if (command.dead_timeout) out += fmt::format(" --dead-timeout {}", *command.dead_timeout);
    if (command.block_size) out += fmt::format(" --block-size {}", *command.block_size);
    if (command.swap) out += " --swap";
    return out;
}

}  // namespace

std::string systemd_units(const config::AttachCommand& command, const std::string& program) {
    const std::string device = fmt::format("nbd{}", command.device);
    const std::string service = fmt::format("gpunbd-attach-{}.service", device);
    std::string out = fmt::format(
        R"(# /etc/systemd/system/{0}
[Unit]
Description=NBD device /dev/{1}
Wants=network-online.target
After=network-online.target gpunbd.service
Before=remote-fs-pre.target
Wants=remote-fs-pre.target

[Service]
Type=notify
NotifyAccess=main
ExecStartPre=-/sbin/modprobe nbd
ExecStart={2} attach{3} {4} /dev/{1}
Restart=on-failure
RestartSec=5
# A wrong command does not get better.
RestartPreventExitStatus=2
# It detaches; swap comes back into memory first, however long that takes.
TimeoutStopSec=infinity
LimitMEMLOCK=infinity
OOMScoreAdjust=-1000

[Install]
WantedBy=multi-user.target
)",
        service, device, unit_word(program), flags_of(command), unit_word(command.uri));
    if (!command.swap) return out;
    return out + fmt::format(R"(
# /etc/systemd/system/dev-{0}.swap
# The service swaps on. This tells the order at shutdown: swap off first.
[Unit]
Requires={1}
After={1}

[Swap]
What=/dev/{0}
Priority={2}
)",
                             device, service, swap_priority);
}

}  // namespace gpunbd::attach
