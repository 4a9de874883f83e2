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

#include "config/quote.hpp"
#include "server/base/background.hpp"
#include "server/base/exit_code.hpp"
#include "server/base/own_program.hpp"
#include "server/protection/heap.hpp"
#include "server/protection/io_flusher.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/oom_score.hpp"
#include "server/protection/real_time.hpp"
#include "server/protection/safe_log.hpp"
#include "server/supervisor/notify_socket.hpp"
#include "server/tools/attach/attachment.hpp"
#include "server/tools/attach/detachment.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/dismantling.hpp"
#include "server/tools/attach/ending_machine.hpp"
#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/line.hpp"
#include "server/tools/attach/step.hpp"
#include "server/tools/attach/swap.hpp"
#include "server/tools/attach/unit.hpp"
#include "server/tools/client/call.hpp"
#include "server/tools/client/nbd_target.hpp"

namespace gpunbd::attach {
namespace {

using server::Background;
using server::exit_failure;
using server::exit_usage;

constexpr std::uint64_t default_timeout = 5;
constexpr std::uint64_t default_dead_timeout = 60;
// A program whose memory is swapped out to a device that fails is killed: it is better to wait.
constexpr std::uint64_t default_dead_timeout_of_swap = 86'400;
constexpr std::chrono::seconds there_within(30);
constexpr std::chrono::seconds try_again_after(1);
// Longer than systemd waits for other services that may hold the device (DefaultTimeoutStopSec=).
constexpr std::chrono::seconds cut_after(120);
constexpr std::chrono::seconds gone_within(10);

Wanted wanted_by(const AttachOptions& command, client::Endpoint callee) {
    const std::uint64_t dead = command.dead_timeout.value_or(
        command.swap ? default_dead_timeout_of_swap : default_dead_timeout);
    return {
        .device = command.device,
        .callee = std::move(callee),
        .connections = command.connections,
        .timeouts = {.dead_connection = std::chrono::seconds(dead),
                     .request = std::chrono::seconds(command.timeout.value_or(default_timeout))},
        .block_size = command.block_size};
}

// Not SIGHUP where nohup or the like has it ignored.
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

// Requests as large as both sides take, in the order in which they come: a server that is memory
// gains nothing by another one.
void tune(const Device& device, std::uint32_t max_request) {
    constexpr std::uint64_t least = 4;  // a page
    const std::uint64_t largest = device.number_in("queue/max_hw_sectors_kb").value_or(least);
    const std::uint64_t wanted = std::clamp<std::uint64_t>(max_request / 1024, least, largest);
    for (const auto& [name, text] : {std::pair("queue/max_sectors_kb", std::to_string(wanted)),
                                     std::pair("queue/scheduler", std::string("none"))}) {
        if (const auto failed = device.set(name, text)) say(failed->text);
    }
}

std::optional<Failure> prepare(const Device& device, const client::ExportFacts& facts, bool swap) {
    if (auto failed = device.await(facts.size, there_within)) return failed;
    tune(device, facts.max_request);
    return swap ? swap_on(device) : std::nullopt;
}

// What is tried each second is reported once, even if sizes in the report change.
std::string without_numbers(std::string text) {
    std::erase_if(text, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
    return text;
}

// Serves a device from when the kernel has it until it is detached.
//
// After a signal it tries to detach each second until nothing holds the device any more. If
// the machine itself ends, it takes away what lies on the device, and as a last resort cuts the
// device off: programs that still use it get I/O errors then, instead of a machine that never ends.
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
    enum class Doing { nothing, preparing, asking_about_machine, detaching };

    void begin(Doing what, const std::function<std::optional<Failure>()>& work) {
        auto step = Step::begin(work);
        if (const auto* failed = std::get_if<Failure>(&step)) return cannot_begin(what, *failed);
        step_.emplace(std::get<Step>(std::move(step)));
        doing_ = what;
    }

    void cannot_begin(Doing what, const Failure& failed) {
        if (what == Doing::preparing) return end_with(failed);
        not_detached(failed);
    }

    void end_with(const Failure& failed) {
        say(failed.text);
        status_ = exit_failure;
    }

    void round() {
        const bool step_has_ended = wait();
        if (step_has_ended) take_result();
        if (status_) return;
        if (doing_ != Doing::detaching && !attachment_.attached()) return detached_by_others();
        if (ending_ && doing_ == Doing::nothing && Clock::now() >= next_try_) try_to_end();
        if (machine_ends_) look_at_time();
        if (status_ || doing_ == Doing::detaching) return;
        if (const auto failed = attachment_.replace_dead_connections()) end_with(*failed);
    }

    void detached_by_others() {
        if (!cut_) say(device_.path() + " was detached");
        status_ = cut_ ? exit_failure : 0;
    }

    void try_to_end() {
        if (machine_ends_) return begin_detaching();
        begin(Doing::asking_about_machine, []() -> std::optional<Failure> {
            if (machine_is_ending()) return std::nullopt;
            return Failure{"it goes on"};
        });
    }

    void begin_detaching() {
        begin(Doing::detaching, [this]() -> std::optional<Failure> {
            if (machine_ends_) {
                if (auto failed = dismantle(device_)) return failed;
            }
            return detach(device_);
        });
    }

    // Swap that comes back is progress: each page brings the machine nearer to its end.
    void look_at_time() {
        std::uint64_t swapped = 0;
        for (const SwapArea& each : swaps_on(device_)) swapped += each.used;
        const auto now = Clock::now();
        if (swapped < swapped_) waiting_since_ = now;
        swapped_ = swapped;
        if (now - waiting_since_ < cut_after) return;
        if (cut_) {  // not even then
            status_ = exit_failure;
            return;
        }
        say(fmt::format(
            "{} is cut off: the machine ends, and the device was still held after {} s; what was "
            "not written to it is lost",
            device_.path(), std::chrono::seconds(cut_after).count()));
        cut_ = true;
        waiting_since_ = now - cut_after + gone_within;
        attachment_.disconnect();
    }

    // Until something has happened, or it is time to look. True: the step has ended.
    bool wait() {
        std::array<pollfd, 3> wait{
            pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
            pollfd{.fd = attachment_.events(), .events = POLLIN, .revents = 0},
            pollfd{.fd = step_ ? step_->ended() : -1, .events = POLLIN, .revents = 0}};
        auto pause = attachment_.pause();
        if (ending_) pause = std::min<std::chrono::milliseconds>(pause, try_again_after);
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
                if (!failed) return tell_ready();
                attachment_.disconnect();
                return end_with(*failed);
            case Doing::asking_about_machine:
                if (!failed) {
                    machine_ends_ = true;
                    waiting_since_ = Clock::now();
                }
                return begin_detaching();
            case Doing::detaching:
                if (failed && attachment_.attached()) return not_detached(*failed);
                if (failed) return detached_by_others();
                say(device_.path() + " is detached");
                status_ = 0;
        }
    }

    void not_detached(const Failure& failed) {
        next_try_ = Clock::now() + try_again_after;
        std::string text = without_numbers(failed.text);
        if (text == told_) return;
        say("not detached: " + failed.text + " (this is tried again each second)");
        told_ = std::move(text);
    }

    void tell_ready() {
        say(device_.path() + " is ready");
        if (background_) {
            say_to_kernel_log();
            background_->announce_ready(Background::Output::discard);
        }
        if (!supervisor_) return;
        if (const auto wrong = supervisor_->send("READY=1")) say(*wrong);
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
    std::string told_;           // why it was not detached, without numbers
    bool machine_ends_ = false;  // and from then on:
    Clock::time_point waiting_since_;
    std::uint64_t swapped_ = 0;
    bool cut_ = false;
    std::optional<int> status_;
};

// What no kernel can do, or should.
std::optional<Failure> unfit(const client::NbdTarget& target, bool swap) {
    if (!target.tls) return std::nullopt;
    if (target.host.empty()) {
        return Failure{
            "the kernel does TLS over TCP only; write nbd+unix for nbds+unix: what passes "
            "over that socket does not leave the machine"};
    }
    if (!swap) return std::nullopt;
    return Failure{
        "swap over TLS could hang the machine: each new handshake takes memory, of which there may "
        "be none until the server answers; leave --swap out, or use a network of your own without "
        "TLS"};
}

Or<client::NbdTarget> parse_target(const AttachOptions& command) {
    const std::string text = config::in_quotes(command.uri) + ": ";
    try {
        auto target = client::parse_nbd_uri(command.uri);
        if (auto wrong = unfit(target, command.swap)) return Failure{text + wrong->text};
        return target;
    } catch (const std::runtime_error& error) {
        return Failure{text + error.what()};
    }
}

// The device that it keeps alive may be where memory comes from. Swap needs all of it; else each
// thing that is missing is told.
std::optional<Failure> protect(bool swap) {
    const std::string could_hang = "swap could hang the machine: ";
    server::never_shrink_heap();
    server::grow_heap();
    for (const auto take : {server::become_io_flusher, server::escape_oom_killer,
                            server::lift_lock_limit, server::lock_all_memory}) {
        const auto missing = take();
        if (missing && swap) return Failure{could_hang + *missing};
        if (missing) say(*missing);
    }
    if (!swap) return std::nullopt;
    auto missing = server::why_log_may_hang();
    if (!missing) missing = server::run_alone_in_real_time();
    return missing ? std::optional(Failure{could_hang + *missing}) : std::nullopt;
}

int ended_by(std::string_view program, const Failure& failed, int status) {
    fmt::print(stderr, "{}: {}\n", program, with_remedy(failed));
    return status;
}

}  // namespace

int run_attach(const AttachOptions& command) {
    constexpr std::string_view program = "gpunbd attach";
    const auto target = parse_target(command);
    if (const auto* bad = std::get_if<Failure>(&target)) return ended_by(program, *bad, exit_usage);
    if (command.unit) {
        fmt::print("{}", systemd_unit(command, server::own_program()));
        return 0;
    }
    std::optional<Background> background;
    if (command.background) {
        auto entered = Background::enter();
        if (const auto* caller = std::get_if<Background::CallerEnds>(&entered)) {
            if (caller->status) return *caller->status;
            say("a signal killed the process that attaches; start it again");
            return exit_failure;
        }
        if (auto* const error = std::get_if<std::string>(&entered)) {
            return ended_by(program, {std::move(*error)}, exit_failure);
        }
        background.emplace(std::get<Background>(std::move(entered)));
    }
    ::signal(SIGPIPE, SIG_IGN);
    auto signals = ending_signals();
    auto supervisor = server::NotifySocket::from_environment();
    auto callee = client::find_endpoint(std::get<client::NbdTarget>(target), client::TlsBy::kernel);
    if (const auto* failed = std::get_if<Failure>(&callee)) {
        return ended_by(program, *failed, exit_failure);
    }
    auto attachment =
        Attachment::attach(wanted_by(command, std::get<client::Endpoint>(std::move(callee))));
    if (const auto* failed = std::get_if<Failure>(&attachment)) {
        return ended_by(program, *failed, exit_failure);
    }
    auto& attached = std::get<Attachment>(attachment);
    if (const auto failed = protect(command.swap)) {
        attached.disconnect();
        return ended_by(program, *failed, exit_failure);
    }
    return AttachProcess(Device(command.device), std::move(attached), std::move(signals),
                         std::move(supervisor), std::move(background))
        .run(command.swap);
}

int run_detach(std::uint32_t number, bool force) {
    const Device device(number);
    const auto failed = force ? detach_by_force(device) : detach(device);
    return failed ? ended_by("gpunbd detach", *failed, exit_failure) : 0;
}

}  // namespace gpunbd::attach
