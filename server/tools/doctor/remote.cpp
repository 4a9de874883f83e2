#include <fmt/format.h>
#include <openssl/crypto.h>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t backlog_of_many = 1024;
constexpr rlim_t files_of_many = 4096;

Diagnosis check_kernel_tls(const Machine& machine) {
    const auto offered = machine.text("/proc/sys/net/ipv4/tcp_available_ulp").value_or("");
    if (machine.has("/sys/module/tls") || (' ' + offered + ' ').find(" tls ") != offered.npos) {
        return ok("kernel TLS", "supported");
    }
    return warn(
        "kernel TLS",
        "the module is not loaded: a server does TLS in user space, and gpunbd attach refuses TLS",
        "modprobe tls, and for each boot: echo tls >/etc/modules-load.d/tls.conf");
}

Diagnosis check_backlog(const Machine& machine) {
    const auto most = machine.number("/proc/sys/net/core/somaxconn").value_or(0);
    return no_less(most, backlog_of_many, "clients that wait to be accepted",
                   fmt::format("net.core.somaxconn is {}", most),
                   fmt::format("sysctl net.core.somaxconn={}", backlog_of_many));
}

Diagnosis check_open_files(const Machine& machine) {
    const rlim_t most = machine.limit(RLIMIT_NOFILE);
    if (most == RLIM_INFINITY) return ok("open files", "no limit");
    return no_less(most, files_of_many, "open files", fmt::format("at most {}", most),
                   fmt::format("LimitNOFILE={} in the unit, or ulimit -Hn", files_of_many));
}

}  // namespace

Diagnoses check_remote(const Machine& machine) {
    return {ok("TLS", ::OpenSSL_version(OPENSSL_VERSION)), check_kernel_tls(machine),
            check_backlog(machine), check_open_files(machine)};
}

}  // namespace gpunbd::server
