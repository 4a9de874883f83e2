#include "server/supervisor/supervisor.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <stdexcept>
#include <system_error>

#include "server/base/line.hpp"
#include "server/base/process.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/protection.hpp"
#include "server/supervisor/notice.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "server/supervisor/server_process.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using Clock = RestartPolicy::Clock;

constexpr rlim_t own_descriptors = 64;   // for the keeper and the descriptors of one message
constexpr int signal_base = 128;         // a shell adds it to the number of a fatal signal
constexpr int notices_at_a_time = 4096;  // exceeds the capacity of the socket
constexpr std::array passed_on{SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

bool is_termination(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT;
}

int shell_status(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : signal_base + WTERMSIG(status);
}

std::string how_it_ended(int status) {
    if (WIFEXITED(status)) return fmt::format("ended with status {}", WEXITSTATUS(status));
    const char* const name = ::sigabbrev_np(WTERMSIG(status));
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       name != nullptr ? name : "?");
}

bool is_own_child(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > text.size()) return false;
    const std::size_t begin = name_end + 4;  // ") S "
    return decimal(text.substr(begin, text.find(' ', begin) - begin)) ==
           static_cast<std::uint64_t>(::getpid());
}

// Limits log lines about invalid messages to one per second.
class Refusals {
 public:
    void add(pid_t sender, std::string_view why) {
        ++suppressed_;
        const auto now = Clock::now();
        if (logged_at_ && now - *logged_at_ < std::chrono::seconds(1)) return;
        if (suppressed_ == 1) {
            log("a message from process {} is refused: {}", sender, why);
        } else {
            log("{} messages are refused; the last one, from process {}: {}", suppressed_, sender,
                why);
        }
        logged_at_ = now;
        suppressed_ = 0;
    }

 private:
    std::optional<Clock::time_point> logged_at_;
    std::uint64_t suppressed_ = 0;
};

class Supervisor {
 public:
    Supervisor(const SupervisorLimits& limits, std::vector<std::string> arguments,
               std::function<void()> on_ready);
    int run();

 private:
    void take_passed_descriptors();
    void connect_own_supervisor();
    void block_signals();
    void lock_memory() const;
    void start();
    void prepare_next();
    void wait() const;
    void check_exit_pipe();
    void read_signals();
    void on_signal(int signal);
    void read_notices();
    void on_datagram(NoticeSocket::Datagram& datagram);
    void store(NoticeSocket::Datagram& datagram, std::string_view name);
    void follow(pid_t sender, pid_t successor);
    void reap();
    void on_death(int status);
    void start_later();
    void pass_on(std::string_view message);
    bool holds_contents() const { return kept_.size() > from_outside_; }

    const SupervisorLimits limits_;
    ServerStart start_;
    std::optional<NotifySocket> own_supervisor_;
    KeptDescriptors kept_;
    std::size_t from_outside_ = 0;  // of kept_, those that were handed to the keeper
    std::optional<OwnedFd> signals_;
    std::optional<NoticeSocket> notices_;
    RestartPolicy policy_;
    Refusals refusals_;
    pid_t server_ = 0;                            // 0: no server
    std::optional<OwnedFd> exit_pipe_;            // of the server, while it is open
    std::optional<PrestartedServer> prestarted_;  // the next server
    std::function<void()> on_ready_;              // empty: not in the background
    bool ready_ = false;
    bool stopping_ = false;
    bool ever_ready_ = false;
    bool ending_ = false;
    int last_status_ = 0;  // as returned by wait()
    std::optional<Clock::time_point> next_start_;
    std::optional<int> exit_code_;
};

std::size_t capacity_of(const SupervisorLimits& limits, rlim_t open_files) {
    const rlim_t room = open_files > own_descriptors ? open_files - own_descriptors : 1;
    if (limits.descriptors <= room) return limits.descriptors;
    log("stores at most {} descriptors instead of {}, because the limit of open files is {}; "
        "raise it with LimitNOFILE= (systemd), --ulimit nofile= (Docker) or ulimit -Hn (a shell), "
        "or lower --max-descriptors",
        room, limits.descriptors, open_files);
    return room;
}

rlimit open_files() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
}

// Returns the limit before the change, which the server gets.
rlimit raised_open_files() {
    const rlimit before = open_files();
    raise_open_files(0);
    return before;
}

Supervisor::Supervisor(const SupervisorLimits& limits, std::vector<std::string> arguments,
                       std::function<void()> on_ready)
    : limits_(limits),
      start_{.program = own_program(),
             .arguments = std::move(arguments),
             .notify_address = {},
             .open_files = raised_open_files()},
      kept_(capacity_of(limits, open_files().rlim_cur), limits.swap),
      policy_(limits.restarts, limits.within),
      on_ready_(std::move(on_ready)) {
    take_passed_descriptors();
    connect_own_supervisor();
    block_signals();
    notices_.emplace();
    start_.notify_address = notices_->address();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    lock_memory();
}

void Supervisor::lock_memory() const {
    if (limits_.swap) {
        if (const auto wrong = lock_all_memory()) throw std::runtime_error("swap: " + *wrong);
    } else if (const auto wrong = lock_touched_memory()) {
        log("{}; a restart can take longer when memory is short", *wrong);
    }
}

// Takes the handed-over descriptors, usually sockets. Closes all other inherited descriptors, which
// would stay open forever.
void Supervisor::take_passed_descriptors() {
    PassedDescriptors handed_over = PassedDescriptors::from_environment();
    const std::vector<std::string> names = handed_over.names();
    // In the background, run_in_background() has closed the others, and its own pipe is open.
    if (!on_ready_) {
        ::close_range(static_cast<unsigned>(STDERR_FILENO + 1 + names.size()), ~0U, 0);
    }
    for (const std::string& name : std::set(names.begin(), names.end())) {
        for (OwnedFd& each : handed_over.take(name)) {
            kept_.keep(is_descriptor_name(name) ? name : "unknown", std::move(each));
        }
    }
    from_outside_ = kept_.size();
}

void Supervisor::connect_own_supervisor() {
    if (auto socket = NotifySocket::from_environment()) {
        own_supervisor_.emplace(std::move(*socket));
    }
    const auto store = take_variable("FDSTORE");
    if (own_supervisor_ && store && *store != "0") {
        log("the supervisor of this process stores descriptors itself; run gpunbd serve without "
            "gpunbd keep");
    }
}

// SIGPIPE is blocked as well: a closed standard error must not end the keeper.
void Supervisor::block_signals() {
    ::signal(SIGCHLD, SIG_DFL);  // if it were ignored, deaths would not be reported
    sigset_t read{};
    ::sigemptyset(&read);
    ::sigaddset(&read, SIGCHLD);
    for (const int each : passed_on) ::sigaddset(&read, each);
    signals_.emplace(::signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals_->get() < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
    sigset_t blocked = read;
    ::sigaddset(&blocked, SIGPIPE);
    ::sigprocmask(SIG_BLOCK, &blocked, &start_.signals);
}

int Supervisor::run() {
    start();
    while (!exit_code_) {
        wait();
        read_signals();
        read_notices();
        check_exit_pipe();
        reap();
        if (next_start_ && Clock::now() >= *next_start_) start();
    }
    return *exit_code_;
}

void Supervisor::start() {
    GPUNBD_ASSERT(server_ == 0, "the keeper starts a server after the end of the earlier one");
    next_start_.reset();
    ready_ = stopping_ = false;
    server_ = prestarted_ ? prestarted_->go() : 0;
    prestarted_.reset();
    if (server_ == 0) server_ = std::max(start_server(start_, kept_), pid_t{0});
    if (server_ != 0) return;
    log("cannot start the server: {}", std::strerror(errno));
    last_status_ = W_EXITCODE(exit_failure, 0);
    start_later();
}

void Supervisor::wait() const {
    if (exit_code_) return;
    int timeout = -1;
    if (next_start_) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next_start_ - Clock::now());
        timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    std::array<pollfd, 3> ready{
        pollfd{.fd = signals_->get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = notices_->descriptor(), .events = POLLIN, .revents = 0},
        pollfd{.fd = exit_pipe_ ? exit_pipe_->get() : -1, .events = 0, .revents = 0}};
    ::poll(ready.data(), ready.size(), timeout);
}

void Supervisor::check_exit_pipe() {
    if (!exit_pipe_) return;
    pollfd cut{.fd = exit_pipe_->get(), .events = 0, .revents = 0};
    if (::poll(&cut, 1, 0) <= 0) return;
    exit_pipe_.reset();
    read_notices();  // all remaining messages; the server sends no more
    prepare_next();
}

// A GPU driver may need more than a second to end a process and to start another, so the next
// server starts early. Only if the server died unexpectedly.
void Supervisor::prepare_next() {
    if (server_ == 0 || prestarted_ || ending_ || stopping_ || !ready_ || !holds_contents()) return;
    prestarted_.emplace(start_, kept_);
    if (prestarted_->pid() == 0) prestarted_.reset();
}

void Supervisor::read_signals() {
    signalfd_siginfo info{};
    while (::read(signals_->get(), &info, sizeof info) == sizeof info) {
        on_signal(static_cast<int>(info.ssi_signo));
    }
}

void Supervisor::on_signal(int signal) {
    if (signal == SIGCHLD) return;  // reap() checks in each round
    if (is_termination(signal) && !ending_) {
        ending_ = true;
        pass_on("STOPPING=1");
    }
    if (server_ != 0) {
        ::kill(server_, signal);
    } else if (ending_) {
        exit_code_ = shell_status(last_status_);
    } else if (signal == SIGHUP) {
        policy_.forget();
        start();
    }
}

void Supervisor::read_notices() {
    for (int i = 0; i != notices_at_a_time; ++i) {
        NoticeSocket::Datagram datagram;
        if (!notices_->receive(datagram)) return;
        on_datagram(datagram);
    }
}

void Supervisor::on_datagram(NoticeSocket::Datagram& datagram) {
    if (server_ == 0 || datagram.sender != server_) {
        // A predecessor sends a barrier after MAINPID=; closing its descriptor is the reply.
        if (datagram.text == "BARRIER=1") return;
        return refusals_.add(datagram.sender, "its sender is not the server");
    }
    if (!datagram.whole) {
        return refusals_.add(datagram.sender,
                             "it is too long, or there is no room for its descriptors");
    }
    const Notice notice = read_notice(datagram.text);
    if (notice.store) store(datagram, notice.name.empty() ? "stored" : notice.name);
    if (notice.remove) kept_.remove(notice.name);
    if (notice.ready) {
        if (!ever_ready_ && on_ready_) on_ready_();
        ready_ = ever_ready_ = true;
    }
    if (notice.stopping) stopping_ = true;
    if (notice.exit_pipe && datagram.count != 0) exit_pipe_.emplace(datagram.take());
    if (notice.main_pid != 0) follow(datagram.sender, notice.main_pid);
    pass_on(to_pass_on(datagram.text));
    // Destroying the datagram closes its descriptor, which completes a barrier.
}

void Supervisor::store(NoticeSocket::Datagram& datagram, std::string_view name) {
    if (!is_descriptor_name(name)) {
        return refusals_.add(datagram.sender, "the name of a descriptor is invalid");
    }
    while (datagram.count != 0) {
        switch (kept_.keep(name, datagram.take())) {
            case KeptDescriptors::Answer::kept:
            case KeptDescriptors::Answer::there_already:
                break;
            case KeptDescriptors::Answer::full:
                refusals_.add(datagram.sender, "the limit of --max-descriptors is reached");
                break;
            case KeptDescriptors::Answer::not_held:
                refusals_.add(datagram.sender, "the memory of a descriptor cannot be locked");
                break;
            case KeptDescriptors::Answer::names_full:
                refusals_.add(datagram.sender,
                              "the names of the stored descriptors do not fit into LISTEN_FDNAMES");
                break;
        }
    }
}

// The successor must be a child of the keeper, so that the keeper receives SIGCHLD.
void Supervisor::follow(pid_t sender, pid_t successor) {
    if (successor == server_) return;
    if (successor < 0 || !is_own_child(successor)) {
        return refusals_.add(sender, "MAINPID= is not a child of the keeper");
    }
    log("process {} is the server now and replaces process {}", successor, server_);
    server_ = successor;
    exit_pipe_.reset();  // the successor has its own
}

void Supervisor::pass_on(std::string_view message) {
    if (!own_supervisor_ || message.empty()) return;
    if (const auto wrong = own_supervisor_->send(message)) log("{}", *wrong);
}

// Also reaps orphaned processes, as process 1 of a container must.
void Supervisor::reap() {
    for (;;) {
        siginfo_t dead{};
        if (::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0 || dead.si_pid == 0) return;
        // Handles the messages that the server sent before its death.
        if (dead.si_pid == server_) read_notices();
        int status = 0;
        if (::waitpid(dead.si_pid, &status, WNOHANG) != dead.si_pid) return;
        if (prestarted_ && dead.si_pid == prestarted_->pid()) {
            prestarted_->ended();
            prestarted_.reset();
        }
        if (dead.si_pid == server_) on_death(status);
    }
}

void Supervisor::on_death(int status) {
    const pid_t pid = server_;
    const int code = shell_status(status);
    server_ = 0;
    exit_pipe_.reset();
    last_status_ = status;
    // Contents that no client could use are not worth a further start, and may be incomplete.
    if (!ever_ready_) kept_.keep_first(from_outside_);
    // Status 0 means a requested end. A server that has never been ready would fail again.
    const bool permanent = WIFEXITED(status) && (code == exit_usage || !ever_ready_);
    if (ending_ || status == 0 || (permanent && !holds_contents())) {
        exit_code_ = code;
    } else {
        log("the server, process {}, {}; {} descriptors are kept", pid, how_it_ended(status),
            kept_.size());
        start_later();
    }
}

// The kept contents are lost with this process, so it does not give up while there are any.
void Supervisor::start_later() {
    GPUNBD_ASSERT(server_ == 0 && !next_start_, "one further start is planned after each end");
    const bool configuration = WIFEXITED(last_status_) && WEXITSTATUS(last_status_) == exit_usage;
    const auto delay = policy_.after_death(
        Clock::now(),
        {.was_ready = ready_, .keeps_contents = holds_contents(), .configuration = configuration});
    if (!delay) {
        log("the server was restarted {} times within {} s; giving up", limits_.restarts,
            limits_.within.count());
        exit_code_ = shell_status(last_status_);
        return;
    }
    next_start_ = Clock::now() + *delay;
    if (configuration) {
        log("the server rejected its configuration; correct it and send SIGHUP to process {} to "
            "restart the server at once; the next restart is in {:.1f} s",
            ::getpid(), std::chrono::duration<double>(*delay).count());
    } else if (*delay >= std::chrono::seconds(1)) {
        log("the server will be restarted in {:.1f} s, or on SIGHUP to process {}",
            std::chrono::duration<double>(*delay).count(), ::getpid());
    }
}

}  // namespace

int keep(const SupervisorLimits& limits, std::vector<std::string> arguments,
         std::function<void()> on_ready) {
    // The server inherits the protections: memory is still short when it starts.
    const auto missing = limits.swap ? protect_process() : std::vector<std::string>{};
    for (const std::string& each : missing) log("swap: {}", each);
    if (!missing.empty()) return exit_failure;
    try {
        return Supervisor(limits, std::move(arguments), std::move(on_ready)).run();
    } catch (const std::exception& error) {
        log("{}", with_open_files_limit(error.what()));
        return exit_failure;
    }
}

}  // namespace gpunbd::server
