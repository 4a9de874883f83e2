#include <fmt/format.h>

#include <charconv>

#include "server/tools/doctor/topics.hpp"

namespace gpunbd::server {

namespace {

constexpr unsigned systemd_with_store = 230;      // FileDescriptorStoreMax=
constexpr unsigned systemd_that_preserves = 254;  // FileDescriptorStorePreserve=
constexpr rlim_t files_of_kept_slabs = 16384;     // gpunbd keep --max-descriptors

// "systemd 252 (252.39-1~deb12u1)"
std::optional<unsigned> systemd_version(const Machine& machine) {
    const auto line = machine.first_line_of({"systemctl", "--version"});
    if (!line || !line->starts_with("systemd ")) return std::nullopt;
    unsigned version = 0;
    const char* const end = line->data() + line->size();
    const auto [stop, error] = std::from_chars(line->data() + 8, end, version);
    return error == std::errc{} ? std::optional(version) : std::nullopt;
}

Diagnosis check_supervisor(const Machine& machine) {
    // sd_booted(3). The programs of systemd may be installed without it.
    if (!machine.has("/run/systemd/system")) {
        return ok("supervisor", "systemd is not running: use gpunbd keep");
    }
    const auto version = systemd_version(machine);
    if (!version) return ok("supervisor", "systemd of an unknown version");
    const std::string is = fmt::format("systemd {}", *version);
    if (*version >= systemd_that_preserves) return ok("supervisor", is);
    if (*version >= systemd_with_store) {
        return ok(
            "supervisor",
            is + ": contents outlive crashes and restarts of the server, but not systemctl stop");
    }
    return fail("supervisor", is + " does not store descriptors", "use gpunbd keep");
}

Diagnosis check_descriptors(const Machine& machine) {
    const rlim_t most = machine.limit(RLIMIT_NOFILE);
    if (most >= files_of_kept_slabs) {
        return ok("descriptors",
                  most == RLIM_INFINITY ? "no limit" : fmt::format("at most {}", most));
    }
    return warn("descriptors", fmt::format("at most {}: large exports need one per slab", most),
                fmt::format("LimitNOFILE={} in the unit, or ulimit -Hn", files_of_kept_slabs));
}

// Kept host memory is in memory files, which use small pages by default.
Diagnosis check_huge_pages(const Machine& machine) {
    const auto mode = machine.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if (!mode)
        return warn("huge pages", "the kernel does not support them",
                    "use a kernel with transparent huge pages");
    if (mode->find("[deny]") == std::string::npos) {
        return ok("huge pages", "available for kept host memory");
    }
    return warn("huge pages", "disabled for memory files",
                "echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

}  // namespace

Diagnoses check_keep(const Machine& machine) {
    return {check_supervisor(machine), check_descriptors(machine), check_huge_pages(machine)};
}

}  // namespace gpunbd::server
