#include "server/tools/attach/attach_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "config/nbd_target.hpp"
#include "config/quote.hpp"
#include "server/base/background.hpp"
#include "server/base/process.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/protection.hpp"
#include "server/supervisor/notify_socket.hpp"
#include "server/tools/attach/attachment.hpp"
#include "server/tools/attach/detachment.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/step.hpp"
#include "server/tools/attach/swap.hpp"
#include "server/tools/attach/unit.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {
namespace {

using server::Background;
using server::exit_failure;
using server::exit_usage;
using server::machine_is_shutting_down;

constexpr std::uint64_t default_timeout = 5;
constexpr std::uint64_t default_dead_timeout = 60;
// If a swap device fails, the kernel kills the programs whose memory it holds. A long wait for the
// server is better.
constexpr std::uint64_t default_dead_timeout_of_swap = 86'400;
constexpr std::chrono::seconds appear_timeout(30);
constexpr std::chrono::seconds retry_interval(1);
// Longer than systemd waits for other services that may hold the device (DefaultTimeoutStopSec=).
constexpr std::chrono::seconds stall_limit(120);
constexpr std::chrono::seconds disconnect_timeout(10);

AttachRequest wanted_by(const AttachOptions& command, client::Endpoint endpoint) {
    const std::uint64_t dead = command.dead_timeout.value_or(
        command.swap ? default_dead_timeout_of_swap : default_dead_timeout);
    return {
        .device = command.device,
        .endpoint = std::move(endpoint),
        .connections = command.connections,
        .timeouts = {.dead_connection = std::chrono::seconds(dead),
                     .request = std::chrono::seconds(command.timeout.value_or(default_timeout))},
        .block_size = command.block_size,
        .swap = command.swap};
}

// SIGHUP is left out if it is ignored, for example by nohup.
OwnedFd ending_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    return OwnedFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Sets the largest request size that both sides accept, and no I/O scheduler: a server that stores
// data in memory does not benefit from reordered requests.
void tune(const Device& device, std::uint32_t max_request) {
    constexpr std::uint64_t least = 4;  // a page
    const std::uint64_t largest = device.number_in("queue/max_hw_sectors_kb").value_or(least);
    const std::uint64_t wanted = std::clamp<std::uint64_t>(max_request / 1024, least, largest);
    for (const auto& [name, text] : {std::pair("queue/max_sectors_kb", std::to_string(wanted)),
                                     std::pair("queue/scheduler", std::string("none"))}) {
        if (const auto failed = device.set(name, text)) log(failed->text);
    }
}

std::optional<Failure> prepare(const Device& device, const client::ExportFacts& facts, bool swap) {
    if (auto failed = device.await(facts.size, appear_timeout)) return failed;
    tune(device, facts.max_request);
    return swap ? swap_on(device) : std::nullopt;
}

// Serves a device from the time when it is attached until it is detached.
//
// After a signal, the process tries to detach the device each second until it is not in use any
// more. During a shutdown of the machine, it first removes mounts and stacked devices. As a last
// resort it disconnects the device: programs that still use it get I/O errors, but the shutdown
// does not hang.
class AttachProcess {
 public:
    AttachProcess(Device device, Attachment attachment, OwnedFd signals,
                  std::optional<server::NotifySocket> supervisor,
                  std::optional<Background> background)
        : device_(std::move(device)),
          attachment_(std::move(attachment)),
          signals_(std::move(signals)),
          supervisor_(std::move(supervisor)),
          background_(std::move(background)) {}

    int run(bool swap) {
        begin(Doing::preparing, [&] { return prepare(device_, attachment_.facts(), swap); });
        while (!status_) round();
        return *status_;
    }

 private:
    using Clock = std::chrono::steady_clock;
    enum class Doing { nothing, preparing, querying_shutdown, detaching };

    void begin(Doing what, const std::function<std::optional<Failure>()>& work) {
        auto step = Step::begin(work);
        if (!step) return cannot_begin(what, step.error());
        step_.emplace(*std::move(step));
        doing_ = what;
    }

    void cannot_begin(Doing what, const Failure& failed) {
        if (what == Doing::preparing) return not_prepared(failed);
        not_detached(failed);
    }

    void not_prepared(const Failure& failed) {
        attachment_.undo_attach();
        end_with(failed);
    }

    void end_with(const Failure& failed) {
        log(failed.text);
        status_ = exit_failure;
    }

    void round() {
        const bool step_has_ended = wait();
        if (step_has_ended) take_result();
        if (status_) return;
        if (doing_ != Doing::detaching && !attachment_.attached()) return detached_by_others();
        if (ending_ && doing_ == Doing::nothing && Clock::now() >= next_try_) retry_end();
        if (shutting_down_) check_progress();
        if (status_ || doing_ == Doing::detaching) return;
        if (const auto failed = attachment_.replace_dead_connections()) end_with(*failed);
    }

    void detached_by_others() {
        if (!forced_) log(device_.path() + " was detached");
        status_ = forced_ ? exit_failure : 0;
    }

    void retry_end() {
        if (shutting_down_) return begin_detaching();
        begin(Doing::querying_shutdown, []() -> std::optional<Failure> {
            if (machine_is_shutting_down()) return std::nullopt;
            return Failure{"the machine continues to run"};
        });
    }

    void begin_detaching() {
        begin(Doing::detaching, [this]() -> std::optional<Failure> {
            if (shutting_down_) {
                if (auto failed = dismantle(device_.name())) return failed;
            }
            return detach(device_);
        });
    }

    // Shrinking swap use is progress, so it restarts the time limit.
    void check_progress() {
        std::uint64_t swapped = 0;
        for (const SwapArea& each : swaps_on(device_)) swapped += each.used;
        const auto now = Clock::now();
        if (swapped < swapped_) waiting_since_ = now;
        swapped_ = swapped;
        if (now - waiting_since_ < stall_limit) return;
        if (forced_) {  // the forced disconnect did not help either
            status_ = exit_failure;
            return;
        }
        log(
            fmt::format("{} was disconnected by force: the machine shuts down, and the device was "
                        "still in use after {} s; data that was not written to it is lost",
                        device_.path(), std::chrono::seconds(stall_limit).count()));
        forced_ = true;
        waiting_since_ = now - stall_limit + disconnect_timeout;
        attachment_.disconnect();
    }

    // Waits for an event or for the next periodic check. Returns true if the step has ended.
    bool wait() {
        std::array<pollfd, 3> wait{
            pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
            pollfd{.fd = attachment_.events(), .events = POLLIN, .revents = 0},
            pollfd{.fd = step_ ? step_->ended() : -1, .events = POLLIN, .revents = 0}};
        auto pause = attachment_.pause();
        if (ending_) pause = std::min<std::chrono::milliseconds>(pause, retry_interval);
        ::poll(wait.data(), wait.size(), static_cast<int>(pause.count()));
        signalfd_siginfo signal{};
        while (::read(signals_.get(), &signal, sizeof signal) > 0) ending_ = true;
        return wait[2].revents != 0;
    }

    void take_result() {
        const auto failed = step_->result();
        step_.reset();
        switch (std::exchange(doing_, Doing::nothing)) {
            case Doing::nothing:
                return;
            case Doing::preparing:
                return failed ? not_prepared(*failed) : report_ready();
            case Doing::querying_shutdown:
                if (!failed) {
                    shutting_down_ = true;
                    waiting_since_ = Clock::now();
                }
                return begin_detaching();
            case Doing::detaching:
                if (failed && attachment_.attached()) return not_detached(*failed);
                if (failed) return detached_by_others();
                log(device_.path() + " is detached");
                status_ = 0;
        }
    }

    void not_detached(const Failure& failed) {
        next_try_ = Clock::now() + retry_interval;
        if (!reported_.is_new(failed.text)) return;
        log("not detached: " + failed.text + " (retried each second)");
    }

    void report_ready() {
        log(device_.path() + " is ready");
        if (background_) {
            say_to_kernel_log();
            background_->announce_ready(Background::Output::discard);
        }
        if (!supervisor_) return;
        if (const auto wrong = supervisor_->send("READY=1")) log(*wrong);
    }

    Device device_;
    Attachment attachment_;
    OwnedFd signals_;
    std::optional<server::NotifySocket> supervisor_;
    std::optional<Background> background_;
    std::optional<Step> step_;
    Doing doing_ = Doing::nothing;
    bool ending_ = false;  // after a signal
    Clock::time_point next_try_;
    RepeatedFailure reported_;    // to detach
    bool shutting_down_ = false;  // if true, the members below are valid
    Clock::time_point waiting_since_;
    std::uint64_t swapped_ = 0;
    bool forced_ = false;
    std::optional<int> status_;
};

// Combinations that the kernel does not support or that are not safe.
std::optional<Failure> unfit(const config::NbdTarget& target, const AttachOptions& command) {
    for (const auto& [name, path] :
         {std::pair("socket", target.socket), std::pair("tls-certificates", target.certificates),
          std::pair("tls-psk-file", target.psk_file)}) {
        if (!command.unit || path.empty() || path.starts_with('/')) continue;
        return Failure{fmt::format("a unit needs absolute paths; write {}=/...", name)};
    }
    if (!target.tls) return std::nullopt;
    if (target.host.empty()) {
        return Failure{
            "the kernel supports TLS over TCP only; write nbd+unix instead of nbds+unix: traffic "
            "over a Unix socket does not leave the machine"};
    }
    if (!command.swap) return std::nullopt;
    return Failure{
        "swap over TLS could hang the machine: each new handshake allocates memory, which may not "
        "be available until the server answers; omit --swap, or use a private network without TLS"};
}

Expected<config::NbdTarget, Failure> parse_target(const AttachOptions& command) {
    const std::string text = config::in_quotes(command.uri) + ": ";
    try {
        auto target = config::parse_nbd_uri(command.uri);
        if (auto wrong = unfit(target, command)) return Failure{text + wrong->text};
        return target;
    } catch (const std::runtime_error& error) {
        return Failure{text + error.what()};
    }
}

// Protects this process from running out of memory, because the device may hold swap. With --swap
// every protection is required; otherwise each missing protection is reported.
std::optional<Failure> protect(bool swap) {
    const std::string could_hang = "swap could hang the machine: ";
    server::never_shrink_heap();
    server::grow_heap();
    for (const auto take : {server::become_io_flusher, server::escape_oom_killer,
                            server::lift_lock_limit, server::lock_all_memory}) {
        const auto missing = take();
        if (missing && swap) return Failure{could_hang + *missing};
        if (missing) log(*missing);
    }
    if (!swap) return std::nullopt;
    auto missing = server::why_log_may_hang();
    if (!missing) missing = server::run_alone_in_real_time();
    return missing ? std::optional(Failure{could_hang + *missing}) : std::nullopt;
}

int print_failure(std::string_view program, const Failure& failed, int status) {
    fmt::print(stderr, "{}: {}\n", program, with_remedy(failed));
    return status;
}

}  // namespace

int run_attach(const AttachOptions& command) {
    constexpr std::string_view program = "gpunbd attach";
    const auto target = parse_target(command);
    if (!target) return print_failure(program, target.error(), exit_usage);
    if (command.unit) {
        fmt::print("{}", systemd_unit(command, server::own_program()));
        return 0;
    }
    std::optional<Background> background;
    if (command.background) {
        auto entered = Background::enter();
        if (const auto* caller = std::get_if<Background::CallerEnds>(&entered)) {
            if (caller->status) return *caller->status;
            log("a signal killed the process that attaches; start it again");
            return exit_failure;
        }
        if (auto* const error = std::get_if<std::string>(&entered)) {
            return print_failure(program, {std::move(*error)}, exit_failure);
        }
        background.emplace(std::get<Background>(std::move(entered)));
    }
    ::signal(SIGPIPE, SIG_IGN);
    auto signals = ending_signals();
    auto supervisor = server::NotifySocket::from_environment();
    auto endpoint = client::find_endpoint(*target, client::TlsBy::kernel);
    if (!endpoint) {
        return print_failure(program, endpoint.error(), exit_failure);
    }
    auto attachment = Attachment::attach(wanted_by(command, *std::move(endpoint)));
    if (!attachment) {
        return print_failure(program, attachment.error(), exit_failure);
    }
    auto& attached = *attachment;
    if (const auto failed = protect(command.swap)) {
        attached.undo_attach();
        return print_failure(program, *failed, exit_failure);
    }
    return AttachProcess(Device(command.device), std::move(attached), std::move(signals),
                         std::move(supervisor), std::move(background))
        .run(command.swap);
}

int run_detach(std::uint32_t number, bool force) {
    const Device device(number);
    const auto failed = force ? detach_by_force(device) : detach(device);
    return failed ? print_failure("gpunbd detach", *failed, exit_failure) : 0;
}

}  // namespace gpunbd::attach
