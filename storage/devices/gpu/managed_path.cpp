#include "storage/devices/gpu/managed_path.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "storage/assertions/assert.hpp"

namespace gpunbd::storage {

namespace {

// process_vm_writev() takes no pointer to const.
constinit std::array<std::byte, 64 << 10> zeroes{};

// Copies between own memory and managed memory. False: the managed memory cannot be accessed.
bool transfer(pid_t process, Copy::Kind kind, std::uint64_t address, std::byte* own,
              std::uint64_t bytes) {
    while (bytes != 0) {
        const bool zero = kind == Copy::Kind::zero;
        const std::size_t part = zero ? std::min(bytes, zeroes.size()) : bytes;
        const iovec here{.iov_base = zero ? zeroes.data() : own, .iov_len = part};
        const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = part};
        const ssize_t done = kind == Copy::Kind::read
                                 ? ::process_vm_readv(process, &here, 1, &there, 1, 0)
                                 : ::process_vm_writev(process, &here, 1, &there, 1, 0);
        if (done <= 0) return false;
        address += static_cast<std::uint64_t>(done);
        if (!zero) own += done;
        bytes -= static_cast<std::uint64_t>(done);
    }
    return true;
}

}  // namespace

ManagedPath::ManagedPath() : CopyPath(any_length), process_(::getpid()) {}

bool ManagedPath::add(Copy& copy) {
    GPUNBD_ASSERT(copy.revocable, "only revocable memory has the same address for the CPU");
    const auto begin = std::chrono::steady_clock::now();
    if (!transfer(process_, copy.kind, copy.address, copy.staging, copy.length)) {
        copy.status = Status::io_error;
    }
    used_ += std::chrono::steady_clock::now() - begin;
    return true;
}

Status zero_managed(std::uint64_t address, std::uint64_t bytes) {
    const bool done = transfer(::getpid(), Copy::Kind::zero, address, nullptr, bytes);
    return done ? Status::ok : Status::io_error;
}

std::string reason_without_managed_path() {
    std::byte from{};
    std::byte to{};
    const auto address = reinterpret_cast<std::uintptr_t>(&from);
    if (transfer(::getpid(), Copy::Kind::read, address, &to, 1)) return {};
    return std::string("process_vm_readv: ") + std::strerror(errno);
}

}  // namespace gpunbd::storage
