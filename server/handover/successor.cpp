#include "server/handover/successor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr int final_message_ms = 200;

constexpr int exit_not_started = 127;
constexpr useconds_t parent_check_interval = 200;  // microseconds

// The array of pointers that exec requires.
class Pointers {
 public:
    explicit Pointers(std::vector<std::string> texts) : texts_(std::move(texts)) {
        for (std::string& each : texts_) pointers_.push_back(each.data());
        pointers_.push_back(nullptr);
    }
    char* const* get() const { return pointers_.data(); }

 private:
    std::vector<std::string> texts_;
    std::vector<char*> pointers_;
};

std::vector<std::string> environment_of(const SuccessorStart& start, int socket) {
    std::vector<std::string> all;
    for (char** each = environ; *each != nullptr; ++each) all.emplace_back(*each);
    all.push_back(fmt::format("{}={}", successor_variable, socket));
    all.push_back("NOTIFY_SOCKET=" + start.notify_address);
    if (start.capacity) all.push_back(fmt::format("FDSTORE={}", *start.capacity));
    if (start.watched) all.push_back(fmt::format("WATCHDOG_USEC={}", start.watched->count()));
    return all;
}

std::vector<std::string> command_of(const SuccessorStart& start) {
    std::vector<std::string> all{start.program};
    all.insert(all.end(), start.arguments.begin(), start.arguments.end());
    return all;
}

// The data of the child processes. After fork, another thread may have held any lock, so they use
// system calls only.
struct ChildPlan {
    const char* program;
    char* const* command;
    char* const* environment;
    int socket;
    int parent_socket;                      // the parent's end of the socket pair
    int pipe;                               // for the successor's process id
    pid_t new_parent;                       // parent of this process
    int end_signal;                         // this process's parent-death signal; 0: none
    std::span<const std::byte> cannot_run;  // the head of the message
};

[[noreturn]] void become_successor(const ChildPlan& plan, pid_t intermediate) {
    ::close(plan.parent_socket);  // so that the wait for the start ends if the parent gives up
    while (::getppid() == intermediate) ::usleep(parent_check_interval);
    if (plan.end_signal != 0) {
        ::prctl(PR_SET_PDEATHSIG, plan.end_signal);
        if (::getppid() != plan.new_parent) ::_exit(exit_not_started);
    }
    // When this message arrives, the parent has a handle of this process.
    std::array<std::byte, 64> start{};
    if (::recv(plan.socket, start.data(), start.size(), 0) <= 0) ::_exit(exit_not_started);
    ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    ::fcntl(plan.socket, F_SETFD, 0);
    ::execve(plan.program, plan.command, plan.environment);
    const char* const why = ::strerrordesc_np(errno);
    std::array<std::byte, 256> message{};
    const std::size_t head = plan.cannot_run.size();
    std::memcpy(message.data(), plan.cannot_run.data(), head);
    const std::size_t length = std::min(std::strlen(why), message.size() - head);
    std::memcpy(message.data() + head, why, length);
    ::send(plan.socket, message.data(), head + length, MSG_NOSIGNAL);
    ::_exit(exit_not_started);
}

[[noreturn]] void run_intermediate(const ChildPlan& plan) {
    const pid_t intermediate = ::getpid();
    const pid_t successor = ::_Fork();
    if (successor == 0) become_successor(plan, intermediate);
    const bool written = ::write(plan.pipe, &successor, sizeof successor) == sizeof successor;
    ::_exit(successor > 0 && written ? 0 : exit_not_started);
}

pid_t fork_twice(const ChildPlan& plan, OwnedFd from, OwnedFd to) {
    const pid_t child = ::_Fork();
    if (child == 0) run_intermediate(plan);
    ::close(to.release());  // so that read() returns when the child ends
    if (child < 0) return -1;
    pid_t successor = -1;
    ssize_t got = 0;
    do {
        got = ::read(from.get(), &successor, sizeof successor);
    } while (got < 0 && errno == EINTR);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return got == sizeof successor ? successor : -1;
}

}  // namespace

Successor::Successor(const SuccessorStart& start) {
    auto [ours, theirs] = MessageSocket::make_pair();
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw std::runtime_error(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
    }
    OwnedFd from(ends[0]);
    OwnedFd to(ends[1]);
    const Pointers command(command_of(start));
    const Pointers environment(environment_of(start, theirs.get()));
    const std::vector<std::byte> cannot_run =
        encode_message({.kind = MessageKind::cannot_run, .body = text_body(start.program + ": ")});
    ChildPlan plan{.program = start.program.c_str(),
                   .command = command.get(),
                   .environment = environment.get(),
                   .socket = theirs.get(),
                   .parent_socket = ours.get(),
                   .pipe = to.get(),
                   .new_parent = ::getppid(),
                   .end_signal = 0,
                   .cannot_run = cannot_run};
    ::prctl(PR_GET_PDEATHSIG, &plan.end_signal);
    pid_ = fork_twice(plan, std::move(from), std::move(to));
    if (pid_ <= 0) throw std::runtime_error("the system cannot create a process");
    handle_ = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!handle_) throw std::runtime_error("it has ended");
    socket_.emplace(std::move(ours));
    socket_->send({.kind = MessageKind::start});
}

// A server that exits by itself sends its reason at the very end, after closing its socket.
Successor::~Successor() {
    socket_.reset();
    if (handle_) {
        pollfd ended{.fd = handle_.get(), .events = POLLIN, .revents = 0};
        ::poll(&ended, 1, final_message_ms);
        ::syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0);
        ::poll(&ended, 1, final_message_ms);  // it must not change what this process goes on using
    }
}

void Successor::detach() {
    GPUNBD_ASSERT(handle_, "a successor is detached once");
    handle_ = OwnedFd();
}

}  // namespace gpunbd::server
