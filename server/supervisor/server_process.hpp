#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/supervisor/kept_descriptors.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Decides when a dead server is restarted: at once if it had served, after increasing delays if it
// had not or if it dies too often.
class RestartPolicy {
 public:
    using Clock = std::chrono::steady_clock;

    // At most `most` restarts, 1 or more, within any period of `within`.
    RestartPolicy(std::size_t most, Clock::duration within) : restarts_(most), within_(within) {}

    struct Death {
        bool was_ready = false;       // the dead server had sent READY=1
        bool keeps_contents = false;  // restart it without a limit
        bool configuration = false;   // it rejected its configuration
    };
    // Returns the delay until the restart. Unset: no restart. Allocates nothing.
    std::optional<Clock::duration> after_death(Clock::time_point now, Death death);

    // Resets the delays: the cause of the failures may have been fixed.
    void forget();

 private:
    std::vector<std::optional<Clock::time_point>> restarts_;  // a ring; next_ is the oldest
    std::size_t next_ = 0;
    const Clock::duration within_;
    unsigned failures_ = 0;  // consecutive servers that were not ready or died too soon
};

// Blocks a pre-started server until the previous one is dead. Before that it must not change shared
// state.
class StartGate {
 public:
    // Takes the pipe out of `handed_over`. Null: this server need not wait.
    static std::optional<StartGate> in(PassedDescriptors& handed_over);

    // Waits for the release. Returns false if the keeper has closed the pipe.
    bool wait() const;

 private:
    explicit StartGate(OwnedFd pipe) : pipe_(std::move(pipe)) {}

    OwnedFd pipe_;
};

// Starts a server for `gpunbd keep`: with the stored descriptors, and with the signal mask, limits
// and environment of the keeper's start.
struct ServerStart {
    std::string program;
    std::vector<std::string> arguments;  // without the program's name
    std::string notify_address;
    sigset_t signals{};   // the blocked signals
    rlimit open_files{};  // before the keeper raised it
};

// Returns the process id, or -1 with errno. The process has a process group of its own and gets
// SIGTERM when this process dies. If the program cannot be run, it prints the reason and exits with
// status 127. The keeper itself does not call give_up_new_privileges(): that is inherited, and a
// server may have to run nvidia-modprobe before it calls it.
pid_t start_server(const ServerStart& start, KeptDescriptors& kept);

// A server that the keeper starts while the previous one still exits. It opens devices and then
// waits at its StartGate.
class PrestartedServer {
 public:
    // Hands over the currently stored descriptors; no more may be stored until go(). pid() is 0 if
    // the server cannot be started.
    PrestartedServer(const ServerStart& start, KeptDescriptors& kept);
    ~PrestartedServer();  // kills a server that go() has not released
    PrestartedServer(const PrestartedServer&) = delete;
    PrestartedServer& operator=(const PrestartedServer&) = delete;

    // 0: there is no such server.
    pid_t pid() const { return pid_; }
    // Releases the StartGate. Returns the process id: the process is the server now.
    pid_t go();
    // The process has been reaped.
    void ended() { pid_ = 0; }

 private:
    pid_t pid_ = 0;
    std::optional<OwnedFd> start_pipe_;
};

}  // namespace gpunbd::server
