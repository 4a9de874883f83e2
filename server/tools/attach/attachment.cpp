#include "server/tools/attach/attachment.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "config/text_layout.hpp"
#include "protocol/constants.hpp"
#include "server/base/process.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/kernel_client.hpp"
#include "server/tools/attach/step.hpp"

namespace gpunbd::attach {

namespace {

namespace json = boost::json;

struct Attached {
    Device device;
    std::optional<Owner> owner;
    std::optional<std::string> instance;
    std::vector<std::string> uses;
};

std::vector<std::string> uses_of(const Device& device) {
    std::vector<std::string> out;
    for (const Holder& each : holders_of(device)) out.push_back(each.what);
    for (const SwapArea& each : swaps_on(device)) out.push_back("is swapped to as " + each.file);
    return out;
}

std::vector<Attached> all_attached(const std::string& root) {
    std::vector<Attached> out;
    for (Device& device : attached_devices(root)) {
        auto owner = owner_of(device);
        auto instance = device.attribute("backend");
        auto uses = uses_of(device);
        out.push_back({std::move(device), std::move(owner), std::move(instance), std::move(uses)});
    }
    return out;
}

std::vector<std::string> words_of_process(const std::string& folder) {
    std::ifstream file(folder + "/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string each; std::getline(file, each, '\0');) words.push_back(each);
    return words;
}

std::optional<std::string> uri_for(const Device& device, const std::vector<std::string>& words) {
    if (words.size() < 2 || words[1] != "attach") return std::nullopt;
    if (std::find(words.begin(), words.end(), device.path()) == words.end()) return std::nullopt;
    const auto uri = std::find_if(words.begin(), words.end(), [](const std::string& each) {
        return each.find("://") != std::string::npos;
    });
    return uri == words.end() ? std::nullopt : std::optional(*uri);
}

using client::ExportFacts;

constexpr std::chrono::milliseconds reconnect_interval(200);
constexpr std::chrono::milliseconds reconnect_interval_after_refusal(
    2000);  // only an administrator can resolve these failures
constexpr std::chrono::milliseconds check_interval(
    2000);  // the kernel sends no event when a device is detached
constexpr std::chrono::seconds handshake_timeout(10);  // includes the connection setup
constexpr std::chrono::seconds open_timeout(2);        // for programs that have the device open
constexpr std::chrono::milliseconds open_check_interval(50);
constexpr int unix_send_buffer = 4 << 20;  // bytes

struct Connection {
    OwnedFd socket;
    ExportFacts facts;
};

// The default buffer of a Unix socket holds a fraction of a long request, so the kernel's client
// and the server would switch many times for each. Not for swap, which has to work while memory is
// short.
void enlarge_send_buffer(int socket) {
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &unix_send_buffer, sizeof unix_send_buffer);
}

Expected<Connection, Failure> connect_one(const AttachRequest& wanted, client::Deadline deadline) {
    auto called = client::call(wanted.endpoint, deadline);
    if (!called) return std::move(called).error();
    auto& stream = *called;
    auto answer = client::query_export(stream, protocol::OptionType::go, wanted.endpoint.name);
    if (!answer) return std::move(answer).error();
    auto& facts = *answer;
    if (auto failed = fit_for_kernel(facts, wanted.block_size)) return std::move(*failed);
    auto socket = stream.release_socket();
    if (!socket) return std::move(socket).error();
    const bool is_unix = wanted.endpoint.address.addresses.front().storage.ss_family == AF_UNIX;
    if (is_unix && !wanted.swap) enlarge_send_buffer(socket->get());
    return Connection{.socket = *std::move(socket), .facts = std::move(facts)};
}

std::string instance_of(const ExportFacts& facts) {
    return facts.instance.empty() ? "no instance" : "instance " + facts.instance;
}

// The kernel compares only the instances, not the size and the flags. The size of the same contents
// may change.
bool may_replace(const ExportFacts& old, const ExportFacts& now) {
    const bool same_contents = !old.instance.empty() && old.instance == now.instance;
    return old.flags == now.flags && (old.size == now.size || same_contents);
}

bool same_shape(const ExportFacts& one, const ExportFacts& other) {
    return one.size == other.size && one.flags == other.flags;
}

// All connections of one device.
struct Connections {
    std::vector<OwnedFd> sockets;
    ExportFacts facts;
};

Expected<Connections, Failure> connect_all(const AttachRequest& wanted) {
    Connections out;
    for (unsigned i = 0; i != wanted.connections; ++i) {
        auto called = connect_one(wanted, client::Clock::now() + handshake_timeout);
        if (!called) return std::move(called).error();
        auto& connection = *called;
        if (i != 0 && (!same_shape(out.facts, connection.facts) ||
                       out.facts.instance != connection.facts.instance)) {
            return Failure{
                "the connections reach different exports; check that the address leads to one "
                "server"};
        }
        out.facts = std::move(connection.facts);
        out.sockets.push_back(std::move(connection.socket));
        if (wanted.connections > 1 &&
            (out.facts.flags & protocol::transmission_flag::can_multi_conn) == 0) {
            return Failure{"the export does not support several connections; omit --connections"};
        }
    }
    return out;
}

// For the kernel, a device that a program has open is as busy as an attached one. udev opens a
// device for a moment, for example after it was detached.
int connect_when_closed(KernelClient& kernel, const AttachRequest& wanted,
                        const Connections& connections) {
    const auto end = client::Clock::now() + open_timeout;
    for (;;) {
        const int error =
            kernel.connect(wanted.device, connections.facts, wanted.timeouts, connections.sockets);
        const bool is_open = error == EBUSY && !Device(wanted.device).attached();
        if (!is_open || client::Clock::now() > end) return error;
        std::this_thread::sleep_for(open_check_interval);
    }
}

Failure refusal_of_kernel(const Device& device, int error) {
    const std::string path = device.path();
    if (error == EPERM) {
        return {"attaching " + path + " needs CAP_SYS_ADMIN; run it as root"};
    }
    if (error == EBUSY && !device.attached()) {
        const auto holders = holders_of(device);
        if (!holders.empty()) return in_use(device, holders);
        return {path + " is in use: a program has it open; close it first"};
    }
    if (error == EBUSY) {
        return {path +
                " is attached already; gpunbd attach --list shows its server, and gpunbd detach " +
                path + " detaches it"};
    }
    return failure(path + " cannot be attached", error);
}

// True if the device is attached to the same contents and its owner has exited.
bool is_orphan(const Device& device, const ExportFacts& facts) {
    return !facts.instance.empty() && device.attribute("backend") == facts.instance &&
           device.size() == facts.size && !owner_of(device);
}

}  // namespace

std::string attachment_table(const std::string& root) {
    const auto all = all_attached(root);
    if (all.empty()) return "no device is attached\n";
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "SIZE", "PROCESS", "URI", "INSTANCE", "USE"}};
    for (const Attached& each : all) {
        const std::string& path = each.device.path();
        rows.push_back({path, config::human_size(each.device.size()),
                        each.owner ? std::to_string(each.owner->process) : "-",
                        each.owner ? config::in_quotes(each.owner->uri) : "-",
                        each.instance.value_or("-"),
                        each.uses.empty() ? "-" : fmt::format("{}", fmt::join(each.uses, ", "))});
    }
    return config::aligned_table(rows);
}

std::string attachment_json(const std::string& root) {
    json::array list;
    for (const Attached& each : all_attached(root)) {
        json::object one;
        one["device"] = each.device.path();
        one["size"] = each.device.size();
        one["process"] = each.owner ? json::value(each.owner->process) : json::value();
        one["uri"] = each.owner ? json::value(each.owner->uri) : json::value();
        one["instance"] = each.instance ? json::value(*each.instance) : json::value();
        json::array uses;
        for (const std::string& use : each.uses) uses.emplace_back(use);
        one["uses"] = std::move(uses);
        list.push_back(std::move(one));
    }
    json::object out;
    out["attached"] = std::move(list);
    return json::serialize(out) + '\n';
}

// Returns the first match, since the others are its child processes. With --background, the parent
// of this process has the same command line and waits for it, so it is no owner.
std::optional<Owner> owner_of(const Device& device) {
    std::optional<Owner> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(device.root() + "proc", error), end;
         !error && at != end; at.increment(error)) {
        const auto number = server::decimal(at->path().filename().string());
        const auto process = static_cast<pid_t>(number.value_or(0));
        if (process == 0 || process == ::getpid() || process == ::getppid()) continue;
        if (out && out->process < process) continue;
        auto uri = uri_for(device, words_of_process(at->path()));
        if (uri) out = Owner{process, std::move(*uri)};
    }
    return out;
}

Expected<Attachment, Failure> Attachment::attach(AttachRequest wanted) {
    auto called = connect_all(wanted);
    auto kernel = KernelClient::open();
    if (!called) {
        // Both problems have to be solved before the device can be attached.
        if (!kernel)
            return Failure{with_remedy(called.error()) + "; besides, " + kernel.error().text};
        return std::move(called).error();
    }
    if (!kernel) return std::move(kernel).error();
    auto& connections = *called;
    auto& facts = connections.facts;
    auto& client = *kernel;
    const Device device(wanted.device);
    const int error = connect_when_closed(client, wanted, connections);
    const bool orphan = error == EBUSY && is_orphan(device, facts);
    if (error != 0 && !orphan) return refusal_of_kernel(device, error);
    log(fmt::format("{} {}: {} bytes, {} connections, {}", orphan ? "taken over" : "attached",
                    device.path(), facts.size, wanted.connections, instance_of(facts)));
    if (facts.instance.empty()) {
        log("the server does not report an id of its contents: a loss of contents cannot be "
            "detected");
    }
    Attachment out(std::move(wanted), std::move(client), std::move(facts));
    if (orphan) out.take_over();
    return out;
}

// No event reports which connections are dead. The kernel refuses to replace a live one.
void Attachment::take_over() {
    taken_over_ = true;
    dead_ = wanted_.connections;
    with_newest_size_ = 0;
    all_dead_since_ = Clock::now();
}

void Attachment::log_once(std::string text) {
    if (text != reported_) log(text);
    reported_ = std::move(text);
}

void Attachment::update_dead_connections() {
    const unsigned more = kernel_.dead_connections(wanted_.device, wanted_.connections);
    if (more == 0) return;
    const unsigned before = dead_;
    dead_ = std::min(dead_ + more, wanted_.connections);
    with_newest_size_ -= std::min(more, with_newest_size_);  // perhaps it was one of these
    if (dead_ == wanted_.connections && before != dead_) all_dead_since_ = Clock::now();
    log_once(fmt::format("dead: {} of {} connections", dead_, wanted_.connections));
}

Attachment::Outcome Attachment::replace_one() {
    auto called =
        connect_one(wanted_, std::min(client::Clock::now() + handshake_timeout, give_up_at()));
    if (!called) {
        log_once("the server is not reachable: " + called.error().text);
        return Outcome::server_unreachable;
    }
    const auto& [socket, facts] = *called;
    if (!may_replace(facts_, facts)) {
        log_once("refused: the server returned with another size or other flags");
        return Outcome::other_contents;
    }
    if (!refused_.empty() && facts.instance == refused_) return Outcome::other_contents;
    const int error = kernel_.reconnect(wanted_.device, facts.instance, socket.get());
    if (error == 0) {
        follow_size(facts.size);
        return Outcome::connected;
    }
    if (facts.instance != facts_.instance) {
        refused_ = facts.instance;
        log_once(fmt::format("refused: the server returned with other contents ({}, not {})",
                             instance_of(facts), instance_of(facts_)));
        return Outcome::other_contents;
    }
    log_once(failure("the kernel refuses the server", error).text);
    return Outcome::refused;
}

// The kernel sends requests over any connection, and the server lets each use the size that the
// export had when it was opened. So the device gets the new size when all connections have it. The
// kernel does not report which connection is dead, so a dead one counts as one with that size.
void Attachment::follow_size(std::uint64_t size) {
    if (newest_size_ != size) with_newest_size_ = 0;
    newest_size_ = size;
    if (++with_newest_size_ < wanted_.connections || size == facts_.size) return;
    const Device device(wanted_.device);
    if (const int error = kernel_.resize(wanted_.device, facts_.instance, size)) {
        return log(failure(device.path() + " cannot be resized", error).text);
    }
    log(fmt::format("resized: {} has {} bytes now, {} before", device.path(), size, facts_.size));
    facts_.size = size;
}

// The kernel then fails all waiting requests, and accepts no connection for this device any more.
Attachment::Clock::time_point Attachment::give_up_at() const {
    if (dead_ != wanted_.connections) return Clock::time_point::max();
    return all_dead_since_ + wanted_.timeouts.dead_connection;
}

std::optional<Failure> Attachment::replace_dead_connections() {
    update_dead_connections();
    while (dead_ != 0) {
        if (Clock::now() >= give_up_at()) {
            kernel_.disconnect(wanted_.device);
            return Failure{fmt::format("given up: {} had no server for {} s",
                                       Device(wanted_.device).path(),
                                       wanted_.timeouts.dead_connection.count())};
        }
        last_ = replace_one();
        if (last_ != Outcome::connected) return std::nullopt;
        --dead_;
        log_once(fmt::format("reconnected: {} of {} connections live", wanted_.connections - dead_,
                             wanted_.connections));
    }
    return std::nullopt;
}

std::chrono::milliseconds Attachment::pause() const {
    if (dead_ == 0) return check_interval;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up_at() - Clock::now());
    const auto interval = last_ == Outcome::server_unreachable ? reconnect_interval
                                                               : reconnect_interval_after_refusal;
    return std::clamp(left, std::chrono::milliseconds(0), interval);
}

}  // namespace gpunbd::attach
