#include "server/tools/attach/attachment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "protocol/constants.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/kernel_fit.hpp"
#include "server/tools/attach/line.hpp"
#include "server/tools/attach/owner.hpp"

namespace gpunbd::attach {
namespace {

using client::ExportFacts;

constexpr std::chrono::milliseconds call_again_after(200);
constexpr std::chrono::milliseconds ask_again_after(2000);  // somebody has to put that right first
constexpr std::chrono::milliseconds look_after(2000);  // nobody tells of a device that is detached
constexpr std::chrono::seconds handshake_within(10);   // the call, too

struct Connection {
    OwnedFd socket;
    ExportFacts facts;
};

Or<Connection> call_server(const Wanted& wanted) {
    auto called = client::call(wanted.callee, client::Clock::now() + handshake_within);
    if (auto* failed = std::get_if<Failure>(&called)) return std::move(*failed);
    auto& stream = std::get<client::Stream>(called);
    auto told = client::ask_about(stream, protocol::OptionType::go, wanted.callee.name);
    if (auto* failed = std::get_if<Failure>(&told)) return std::move(*failed);
    auto& facts = std::get<ExportFacts>(told);
    if (auto failed = fit_for_kernel(facts, wanted.block_size)) return std::move(*failed);
    auto socket = stream.hand_over();
    if (auto* failed = std::get_if<Failure>(&socket)) return std::move(*failed);
    return Connection{.socket = std::get<OwnedFd>(std::move(socket)), .facts = std::move(facts)};
}

std::string instance_of(const ExportFacts& facts) {
    return facts.instance.empty() ? "no instance" : "instance " + facts.instance;
}

std::string path_of(std::uint32_t device) { return fmt::format("/dev/nbd{}", device); }

// The kernel compares the instances itself; what else makes another export of it, it does not.
bool same_shape(const ExportFacts& one, const ExportFacts& other) {
    return one.size == other.size && one.flags == other.flags;
}

// All that the server is to have, for one device.
struct Connections {
    std::vector<OwnedFd> sockets;
    ExportFacts facts;
};

Or<Connections> call_server_often(const Wanted& wanted) {
    Connections out;
    for (unsigned i = 0; i != wanted.connections; ++i) {
        auto called = call_server(wanted);
        if (auto* failed = std::get_if<Failure>(&called)) return std::move(*failed);
        auto& connection = std::get<Connection>(called);
        if (i != 0 && (!same_shape(out.facts, connection.facts) ||
                       out.facts.instance != connection.facts.instance)) {
            return Failure{"each connection reaches another export"};
        }
        out.facts = std::move(connection.facts);
        out.sockets.push_back(std::move(connection.socket));
        if (wanted.connections > 1 &&
            (out.facts.flags & protocol::transmission_flag::can_multi_conn) == 0) {
            return Failure{"the export is not for several connections; leave --connections out"};
        }
    }
    return out;
}

Failure refusal_of_kernel(std::uint32_t device, int error) {
    const std::string path = path_of(device);
    if (error == EPERM) {
        return {"attaching " + path + " needs CAP_SYS_ADMIN; run it as root"};
    }
    if (error == EBUSY) {
        return {path +
                " is attached already; gpunbd attach --list tells to whom, and gpunbd "
                "detach " +
                path + " gives it back"};
    }
    return failure(path + " cannot be attached", error);
}

// Attached by somebody who has ended since, to the same contents.
bool is_orphan(const Device& device, const ExportFacts& facts) {
    return !facts.instance.empty() && device.attribute("backend") == facts.instance &&
           device.size() == facts.size && !owner_of(device);
}

}  // namespace

Or<Attachment> Attachment::attach(Wanted wanted) {
    auto called = call_server_often(wanted);
    auto kernel = KernelClient::open();
    const auto* lacking = std::get_if<Failure>(&kernel);
    if (auto* failed = std::get_if<Failure>(&called)) {
        // Both have to be mended before the device can be attached.
        if (lacking != nullptr)
            return Failure{with_remedy(*failed) + "; besides, " + lacking->text};
        return std::move(*failed);
    }
    if (lacking != nullptr) return *lacking;
    auto& [sockets, facts] = std::get<Connections>(called);
    auto& client = std::get<KernelClient>(kernel);
    const int error = client.connect(wanted.device, facts, wanted.timeouts, sockets);
    const bool orphan = error == EBUSY && is_orphan(Device(wanted.device), facts);
    if (error != 0 && !orphan) return refusal_of_kernel(wanted.device, error);
    say(fmt::format("{} {}: {} bytes, {} connections, {}", orphan ? "taken over" : "attached",
                    path_of(wanted.device), facts.size, wanted.connections, instance_of(facts)));
    if (facts.instance.empty()) {
        say("the server does not say which contents these are: if it loses them, nobody will "
            "notice");
    }
    Attachment out(std::move(wanted), std::move(client), std::move(facts));
    if (orphan) out.take_all_for_dead();
    return out;
}

// Nobody has told which are. The kernel takes no connection in the place of one that lives.
void Attachment::take_all_for_dead() {
    dead_ = wanted_.connections;
    all_dead_since_ = Clock::now();
}

void Attachment::tell_once(std::string text) {
    if (text != told_) say(text);
    told_ = std::move(text);
}

void Attachment::look_for_dead_connections() {
    const unsigned more = kernel_.dead_connections(wanted_.device, wanted_.connections);
    if (more == 0) return;
    const unsigned before = dead_;
    dead_ = std::min(dead_ + more, wanted_.connections);
    if (dead_ == wanted_.connections && before != dead_) all_dead_since_ = Clock::now();
    tell_once(fmt::format("dead: {} of {} connections", dead_, wanted_.connections));
}

Attachment::Outcome Attachment::replace_one() {
    auto called = call_server(wanted_);
    if (const auto* failed = std::get_if<Failure>(&called)) {
        tell_once("the server is away: " + failed->text);
        return Outcome::server_away;
    }
    const auto& [socket, facts] = std::get<Connection>(called);
    if (!same_shape(facts, facts_)) {
        tell_once("refused: the server comes back with another size or other flags");
        return Outcome::other_contents;
    }
    if (!refused_.empty() && facts.instance == refused_) return Outcome::other_contents;
    const int error = kernel_.reconnect(wanted_.device, facts.instance, socket.get());
    if (error == 0) return Outcome::connected;
    if (facts.instance != facts_.instance) {
        refused_ = facts.instance;
        tell_once(fmt::format("refused: the server comes back with other contents ({}, not {})",
                              instance_of(facts), instance_of(facts_)));
        return Outcome::other_contents;
    }
    tell_once(failure("the kernel refuses the server", error).text);
    return Outcome::refused;
}

// The kernel then fails whatever has waited, and takes no connection for this device any more.
bool Attachment::given_up_by_kernel() const {
    return dead_ == wanted_.connections &&
           Clock::now() - all_dead_since_ > wanted_.timeouts.dead_connection;
}

std::optional<Failure> Attachment::replace_dead_connections() {
    look_for_dead_connections();
    while (dead_ != 0) {
        if (given_up_by_kernel()) {
            kernel_.disconnect(wanted_.device);
            return Failure{fmt::format("given up: {} had no server for {} s",
                                       path_of(wanted_.device),
                                       wanted_.timeouts.dead_connection.count())};
        }
        last_ = replace_one();
        if (last_ != Outcome::connected) return std::nullopt;
        --dead_;
        tell_once(fmt::format("reconnected: {} of {} connections live", wanted_.connections - dead_,
                              wanted_.connections));
    }
    return std::nullopt;
}

std::chrono::milliseconds Attachment::pause() const {
    if (dead_ == 0) return look_after;
    return last_ == Outcome::server_away ? call_again_after : ask_again_after;
}

}  // namespace gpunbd::attach
