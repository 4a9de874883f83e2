#include "server/attach/attach_process.hpp"

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
#include "server/attach/attachment.hpp"
#include "server/attach/detachment.hpp"
#include "server/attach/device.hpp"
#include "server/attach/line.hpp"
#include "server/attach/step.hpp"
#include "server/attach/swap.hpp"
#include "server/attach/unit.hpp"
#include "server/client/call.hpp"
#include "server/client/nbd_target.hpp"
#include "server/keeping/exit_code.hpp"
#include "server/keeping/notify_socket.hpp"
#include "server/keeping/own_program.hpp"
#include "server/protection/heap.hpp"
#include "server/protection/io_flusher.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/oom_score.hpp"
#include "server/protection/real_time.hpp"
#include "server/protection/safe_log.hpp"

namespace gpunbd::attach {
namespace {

using server::exit_failure;
using server::exit_usage;

constexpr std::uint64_t default_timeout = 5;
constexpr std::uint64_t default_dead_timeout = 60;
// Who has swapped to the device dies where it fails: better to wait for the server for a day.
constexpr std::uint64_t default_dead_timeout_of_swap = 86'400;
constexpr std::chrono::seconds there_within(30);

Wanted wanted_by(const config::AttachCommand& command, client::Callee callee) {
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
server::OwnedFd ending_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    return server::OwnedFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
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

// From when the kernel has the device until it is detached.
class AttachProcess {
 public:
    AttachProcess(Device device, Attachment attachment, server::OwnedFd signals,
                  std::optional<server::NotifySocket> supervisor)
        : device_(std::move(device)),
          attachment_(std::move(attachment)),
          signals_(std::move(signals)),
          supervisor_(std::move(supervisor)) {}

    int run(bool swap) {
        begin(Doing::preparing, [&] { return prepare(device_, attachment_.facts(), swap); });
        while (!status_) round();
        return *status_;
    }

 private:
    enum class Doing { nothing, preparing, detaching };

    void begin(Doing what, const std::function<std::optional<Failure>()>& work) {
        auto step = Step::begin(work);
        if (const auto* failed = std::get_if<Failure>(&step)) {
            end_with(*failed);
            return;
        }
        step_.emplace(std::get<Step>(std::move(step)));
        doing_ = what;
    }

    void end_with(const Failure& failed) {
        say(failed.text);
        status_ = exit_failure;
    }

    void round() {
        const bool step_has_ended = wait();
        if (step_has_ended) take_result();
        if (status_) return;
        if (doing_ == Doing::nothing && std::exchange(end_asked_for_, false)) {
            begin(Doing::detaching, [&] { return detach(device_); });
        }
        if (!attachment_.attached()) {
            if (doing_ == Doing::detaching) return;  // that step says how it went
            say(device_.path() + " was detached");
            status_ = 0;
        } else if (const auto failed = attachment_.replace_dead_connections()) {
            end_with(*failed);
        }
    }

    // Until something has happened, or it is time to look. True: the step has ended.
    bool wait() {
        std::array<pollfd, 3> wait{
            pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
            pollfd{.fd = attachment_.events(), .events = POLLIN, .revents = 0},
            pollfd{.fd = step_ ? step_->ended() : -1, .events = POLLIN, .revents = 0}};
        ::poll(wait.data(), wait.size(), static_cast<int>(attachment_.pause().count()));
        signalfd_siginfo signal{};
        while (::read(signals_.get(), &signal, sizeof signal) > 0) end_asked_for_ = true;
        return wait[2].revents != 0;
    }

    void take_result() {
        const auto failed = step_->result();
        step_.reset();
        const Doing done = std::exchange(doing_, Doing::nothing);
        if (done == Doing::preparing) {
            if (!failed) return tell_ready();
            attachment_.disconnect();
            end_with(*failed);
        } else if (failed) {
            say("not detached: " + failed->text);
        } else {
            say(device_.path() + " is detached");
            status_ = 0;
        }
    }

    void tell_ready() {
        say(device_.path() + " is ready");
        if (!supervisor_) return;
        if (const auto wrong = supervisor_->send("READY=1")) say(*wrong);
    }

    Device device_;
    Attachment attachment_;
    server::OwnedFd signals_;
    std::optional<server::NotifySocket> supervisor_;
    std::optional<Step> step_;
    Doing doing_ = Doing::nothing;
    bool end_asked_for_ = false;
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

Or<client::NbdTarget> parse_target(const config::AttachCommand& command) {
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
    fmt::print(stderr, "{}: {}\n", program, failed.text);
    return status;
}

}  // namespace

int run_attach(const config::AttachCommand& command) {
    constexpr std::string_view program = "gpunbd attach";
    const auto target = parse_target(command);
    if (const auto* bad = std::get_if<Failure>(&target)) return ended_by(program, *bad, exit_usage);
    if (command.unit) {
        fmt::print("{}", systemd_unit(command, server::own_program()));
        return 0;
    }
    ::signal(SIGPIPE, SIG_IGN);
    auto signals = ending_signals();
    auto supervisor = server::NotifySocket::from_environment();
    auto callee = client::find_callee(std::get<client::NbdTarget>(target), client::TlsBy::kernel);
    if (const auto* failed = std::get_if<Failure>(&callee)) {
        return ended_by(program, *failed, exit_failure);
    }
    auto attachment =
        Attachment::attach(wanted_by(command, std::get<client::Callee>(std::move(callee))));
    if (const auto* failed = std::get_if<Failure>(&attachment)) {
        return ended_by(program, *failed, exit_failure);
    }
    auto& attached = std::get<Attachment>(attachment);
    if (const auto failed = protect(command.swap)) {
        attached.disconnect();
        return ended_by(program, *failed, exit_failure);
    }
    return AttachProcess(Device(command.device), std::move(attached), std::move(signals),
                         std::move(supervisor))
        .run(command.swap);
}

int run_detach(const config::DetachCommand& command) {
    const Device device(command.device);
    const auto failed = command.force ? detach_by_force(device) : detach(device);
    return failed ? ended_by("gpunbd detach", *failed, exit_failure) : 0;
}

}  // namespace gpunbd::attach
