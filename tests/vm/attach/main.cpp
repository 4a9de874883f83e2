// nbd_attach [--name EXPORT] [--connections N] [--dead SECONDS] [--timeout SECONDS] ADDRESS NUMBER
// Attaches /dev/nbdNUMBER and stays: SIGTERM and SIGINT detach it.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "attachment.hpp"

namespace gpunbd::attach {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

bool take_number(std::string_view text, unsigned long largest, auto& into) {
    unsigned long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value > largest) return false;
    into = std::remove_reference_t<decltype(into)>(value);
    return true;
}

bool take_flag(std::string_view flag, std::string_view value, Wanted& wanted) {
    constexpr unsigned long day = 86400;
    constexpr unsigned long most_connections = 256;
    if (flag == "--name") {
        wanted.name = value;
        return value.size() <= protocol::max_string;
    }
    if (flag == "--connections") {
        return take_number(value, most_connections, wanted.connections) && wanted.connections != 0;
    }
    if (flag == "--dead") return take_number(value, day, wanted.timeouts.dead_connection);
    if (flag == "--timeout") return take_number(value, day, wanted.timeouts.request);
    return false;
}

Or<Wanted> parse(int count, char** words) {
    Wanted wanted;
    int at = 1;
    for (; at + 1 < count && std::string_view(words[at]).starts_with("--"); at += 2) {
        if (!take_flag(words[at], words[at + 1], wanted)) {
            return Failure{fmt::format("'{} {}' is wrong", words[at], words[at + 1])};
        }
    }
    if (count - at != 2) return Failure{"ADDRESS and NUMBER are missing"};
    auto address = parse_address(words[at]);
    if (const auto* failed = std::get_if<Failure>(&address)) return *failed;
    wanted.address = std::get<Address>(std::move(address));
    constexpr unsigned long most_devices = 1UL << 20;
    if (!take_number(words[at + 1], most_devices, wanted.device)) {
        return Failure{fmt::format("'{}' is no number of a device", words[at + 1])};
    }
    return wanted;
}

int ended_by(const Failure& failed, int status) {
    fmt::print(stderr, "nbd_attach: {}\n", failed.text);
    return status;
}

int run(int count, char** words) {
    auto wanted = parse(count, words);
    if (const auto* wrong = std::get_if<Failure>(&wanted)) return ended_by(*wrong, exit_usage);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    const server::OwnedFd end(::signalfd(-1, &signals, SFD_CLOEXEC));
    auto attachment = Attachment::attach(std::get<Wanted>(std::move(wanted)));
    if (const auto* failed = std::get_if<Failure>(&attachment))
        return ended_by(*failed, exit_failed);
    const auto failed = std::get<Attachment>(attachment).hold(end.get());
    return failed ? ended_by(*failed, exit_failed) : 0;
}

}  // namespace
}  // namespace gpunbd::attach

int main(int argc, char** argv) { return gpunbd::attach::run(argc, argv); }
