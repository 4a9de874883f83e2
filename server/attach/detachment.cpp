#include "server/attach/detachment.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>

#include "server/attach/holders.hpp"
#include "server/attach/kernel_client.hpp"
#include "server/attach/swap.hpp"
#include "server/listening/owned_fd.hpp"

namespace gpunbd::attach {
namespace {

constexpr std::chrono::seconds detached_within(10);

std::optional<Failure> held(const Device& device) {
    const auto holders = holders_of(device);
    if (holders.empty()) return std::nullopt;
    return Failure{fmt::format("{} {}; give that up first, for example: umount {}", device.path(),
                               fmt::join(holders, ", "), device.path())};
}

// Mounts of other namespaces, and who wants it for himself, are seen by the kernel alone.
std::optional<Failure> claimed(const Device& device) {
    const server::OwnedFd file(::open(device.path().c_str(), O_RDONLY | O_CLOEXEC | O_EXCL));
    if (file.get() >= 0 || errno != EBUSY) return std::nullopt;
    return Failure{device.path() +
                   " is in use: mounted in another mount namespace, such as a container's, or "
                   "opened by a program for itself; end that first"};
}

std::optional<Failure> disconnect(const Device& device) {
    auto kernel = KernelClient::open();
    if (const auto* failed = std::get_if<Failure>(&kernel)) return *failed;
    const int error = std::get<KernelClient>(kernel).disconnect(device.number());
    if (error == EPERM) return Failure{"detaching needs CAP_SYS_ADMIN; run it as root"};
    if (error != 0) return failure(device.path() + " cannot be detached", error);
    return std::nullopt;
}

std::optional<Failure> missing(const Device& device) {
    if (device.attached()) return std::nullopt;
    return Failure{device.path() + " is not attached (gpunbd attach --list tells what is)"};
}

}  // namespace

std::optional<Failure> detach(const Device& device) {
    if (auto failed = missing(device)) return failed;
    if (auto failed = held(device)) return failed;
    if (auto failed = swap_off(device)) return failed;
    if (auto failed = claimed(device)) return failed;
    if (auto failed = disconnect(device)) return failed;
    return device.await_detached(detached_within);
}

std::optional<Failure> detach_by_force(const Device& device) {
    if (auto failed = missing(device)) return failed;
    return disconnect(device);
}

}  // namespace gpunbd::attach
