#include "tests/server/daemon/control_plane/disk.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <thread>

namespace gpunbd::server::test::disk {

namespace {

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::string folder;
    enum class Fault : std::uint8_t { none, fails, holds } fault = Fault::none;
    Call call = Call::read;
    std::uint64_t left = 0;  // calls until the fault
    bool holding = false;
    bool failed = false;
    int error = 0;
};

State& state() {
    static State its;
    return its;
}

const std::thread::id main_thread = std::this_thread::get_id();

bool is_image(int fd, const std::string& folder) {
    std::array<char, 64> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
    std::array<char, 256> path{};
    const ssize_t length = ::readlink(link.data(), path.data(), path.size());
    return length > 0 &&
           std::string_view(path.data(), static_cast<std::size_t>(length)).starts_with(folder);
}

}  // namespace

void set_folder(const std::string& folder) {
    const std::lock_guard lock(state().mutex);
    state().folder = folder;
}

void fail(Call call, std::uint64_t from) {
    const std::lock_guard lock(state().mutex);
    state().fault = State::Fault::fails;
    state().call = call;
    state().left = from;
    state().failed = false;
}

void hold(std::uint64_t read) {
    const std::lock_guard lock(state().mutex);
    state().fault = State::Fault::holds;
    state().call = Call::read;
    state().left = read;
}

bool is_holding() {
    const std::lock_guard lock(state().mutex);
    return state().holding;
}

bool has_failed() {
    const std::lock_guard lock(state().mutex);
    return state().failed;
}

void release(int error) {
    const std::lock_guard lock(state().mutex);
    state().fault = State::Fault::none;
    state().error = error;
    state().failed = false;
    state().changed.notify_all();
}

// Returns whether the call fails, with errno set.
static bool fails(Call call, int fd) {
    if (std::this_thread::get_id() == main_thread) return false;
    State& its = state();
    std::unique_lock lock(its.mutex);
    if (its.fault == State::Fault::none || its.call != call || !is_image(fd, its.folder)) {
        return false;
    }
    if (its.left != 0) {
        --its.left;
        return false;
    }
    if (its.fault == State::Fault::fails) {
        its.failed = true;
        errno = call == Call::read ? EIO : ENOSPC;
        return true;
    }
    its.holding = true;
    its.changed.wait(lock, [&] { return its.fault == State::Fault::none; });
    its.holding = false;
    errno = its.error;
    return its.error != 0;
}

}  // namespace gpunbd::server::test::disk

extern "C" {

ssize_t __real_pread(int fd, void* to, size_t length, off_t offset);
ssize_t __real_preadv2(int fd, const iovec* to, int count, off_t offset, int flags);
ssize_t __real_pwrite(int fd, const void* from, size_t length, off_t offset);
ssize_t __wrap_pread(int fd, void* to, size_t length, off_t offset);
ssize_t __wrap_preadv2(int fd, const iovec* to, int count, off_t offset, int flags);
ssize_t __wrap_pwrite(int fd, const void* from, size_t length, off_t offset);
int __wrap_fsync(int fd);
int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...);
int __wrap_io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags);

namespace disk = gpunbd::server::test::disk;

ssize_t __wrap_pread(int fd, void* to, size_t length, off_t offset) {
    return disk::fails(disk::Call::read, fd) ? -1 : __real_pread(fd, to, length, offset);
}
// Reads of the page cache only: the caller repeats them by pread().
ssize_t __wrap_preadv2(int /*fd*/, const iovec* /*to*/, int /*count*/, off_t /*offset*/,
                       int /*flags*/) {
    errno = EAGAIN;
    return -1;
}
ssize_t __wrap_pwrite(int fd, const void* from, size_t length, off_t offset) {
    return disk::fails(disk::Call::write, fd) ? -1 : __real_pwrite(fd, from, length, offset);
}
// The test does not simulate power failures.
int __wrap_fsync(int /*fd*/) { return 0; }
// No pressure on the memory of this machine changes a sequence. The kernel takes 10 ms to close a
// file that reports it.
int __wrap_open(const char* path, int flags, ...) {
    const std::string_view name(path);
    if (name.starts_with("/proc/pressure/") || name.ends_with(".pressure")) {
        errno = ENOENT;
        return -1;
    }
    std::va_list arguments;
    va_start(arguments, flags);
    const auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : mode_t{0};
    va_end(arguments);
    return __real_open(path, flags, mode);
}
// The spill file uses threads. The kernel takes 10 ms to close a ring.
int __wrap_io_uring_queue_init(unsigned /*entries*/, io_uring* /*ring*/, unsigned /*flags*/) {
    return -EPERM;
}
}
