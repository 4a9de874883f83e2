#include "server/daemon/listeners.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <boost/crc.hpp>
#include <stdexcept>
#include <utility>

#include "config/origin_cycle.hpp"
#include "config/quote.hpp"
#include "server/daemon/server_context.hpp"
#include "server/exports/access_list.hpp"
#include "server/net/address_error.hpp"
#include "server/net/listener.hpp"
#include "server/net/tcp_address.hpp"
#include "server/net/unix_address.hpp"
#include "server/net/vsock_address.hpp"
#include "server/supervisor/descriptor_store.hpp"

namespace gpunbd::server {

namespace {

const std::string socket_prefix = std::string(own_prefix) + "listen/";

constexpr std::size_t max_inherited = 64;

}  // namespace

// Addresses can be longer than names and contain other characters.
std::string KeptSockets::name(const std::string& address) {
    boost::crc_optimal<64, 0x42F0E1EBA9EA3693> crc;
    crc.process_bytes(address.data(), address.size());
    return fmt::format("{}{:016x}", socket_prefix, crc.checksum());
}

std::optional<OwnedFd> KeptSockets::take(const std::string& address) {
    std::vector<OwnedFd> handed_over = handed_over_.take(name(address));
    if (!outlive_ && !handed_over.empty()) forget(name(address));
    for (OwnedFd& each : handed_over) {
        if (is_listening(each.get())) return std::move(each);
    }
    return std::nullopt;
}

void KeptSockets::keep(const std::string& address, int fd) {
    if (!outlive_) return;
    const std::string its_name = name(address);
    auto wrong = store_.remove(its_name);
    if (!wrong) wrong = store_.store(its_name, fd);
    if (!wrong) return;
    spdlog::warn("{}: the socket cannot be stored, so clients are refused during a restart: {}",
                 address, *wrong);
}

void KeptSockets::forget_the_rest() {
    for (const std::string& each : handed_over_.names()) {
        if (!each.starts_with(socket_prefix)) continue;
        handed_over_.take(each);
        forget(each);
    }
}

void KeptSockets::forget(const std::string& its_name) {
    if (const auto wrong = store_.remove(its_name)) spdlog::warn("{}", *wrong);
}

Listeners::Listeners(ServerContext& context, ConnectionDispatcher& dispatcher,
                     const RunCommand* command)
    : context_(context), dispatcher_(dispatcher), command_(command) {
    Supervision& supervision = context.supervision;
    if (!supervision.store) return;
    kept_.emplace(*supervision.store, supervision.descriptors, any_keeps(context.options.exports));
}

void Listeners::open() {
    std::vector<OwnedFd> inherited = context_.supervision.descriptors.take_sockets();
    if (inherited.size() > max_inherited) {
        throw std::runtime_error(
            fmt::format("LISTEN_FDS: {} sockets are handed over; at most {} can be used",
                        inherited.size(), max_inherited));
    }
    if (command_ != nullptr) {
        config::UnixListener options;
        options.path = command_->socket_path();
        listeners_.push_back(Listener::unix_socket(context_.io, options));
    } else if (!inherited.empty()) {
        inherited_ = true;
        for (OwnedFd& fd : inherited) {
            listeners_.push_back(Listener::inherited(context_.io, std::move(fd)));
        }
    } else {
        for (const auto& tcp : context_.options.tcp) open_tcp(tcp);
        for (const auto& path : context_.options.unix_sockets) open_unix(path);
        for (const auto& vsock : context_.options.vsock) {
            open_kept(name_of(vsock), [&] { return Listener::vsock(context_.io, vsock); });
        }
    }
    if (kept_) kept_->forget_the_rest();
    if (const auto problems = problems_of(context_.options); !problems.empty()) {
        throw std::runtime_error(problems.front());
    }
}

void Listeners::start() {
    for (const auto& listener : listeners_) {
        listener->start(
            [this](OwnedFd fd, Peer peer) { dispatcher_.accept(std::move(fd), std::move(peer)); });
    }
}

Service::Commit Listeners::reload(const config::Options& next, Problems& problems) {
    for (std::string& each : problems_of(next)) problems.push_back(std::move(each));
    return {};
}

void Listeners::drain() {
    for (const auto& listener : listeners_) listener->stop();
}

std::vector<Listeners::Copy> Listeners::copies() const {
    std::vector<Copy> copies;
    for (const auto& listener : listeners_) {
        OwnedFd copy = OwnedFd::copy_of(listener->descriptor());
        if (!copy) throw std::runtime_error("no descriptors are available");
        copies.push_back(
            {inherited_ ? "inherited" : KeptSockets::name(listener->where()), std::move(copy)});
    }
    return copies;
}

// Uses the stored socket of an earlier server, or opens and stores one.
template <typename Open>
void Listeners::open_kept(const std::string& address, Open open) {
    if (kept_) {
        if (auto fd = kept_->take(address)) {
            listeners_.push_back(Listener::taken_over(context_.io, std::move(*fd), address));
            return;
        }
    }
    listeners_.push_back(open());
    if (kept_) kept_->keep(address, listeners_.back()->descriptor());
}

void Listeners::open_unix(const config::UnixListener& options) {
    const auto open = [&] {
        return Listener::unix_socket(context_.io, options, kept_ && kept_->outlive());
    };
    struct stat file {};
    // A stored socket is unreachable if its file was removed.
    if (kept_ && ::lstat(options.path.c_str(), &file) != 0) kept_->take(name_of(options));
    open_kept(name_of(options), open);
}

void Listeners::open_tcp(const config::TcpListener& options) {
    try {
        open_kept(name_of(options), [&] { return Listener::tcp(context_.io, options); });
    } catch (const AddressError& error) {
        if (!options.optional || error.kind != AddressError::Kind::absent) throw;
        spdlog::warn("{}: skipped", error.what());
    }
}

std::vector<std::string> Listeners::problems_of(const config::Options& options) const {
    std::vector<std::string> texts;
    config::ServerAddresses own;
    for (const auto& listener : listeners_) listener->add_to(own);
    if (const auto cycle = config::origin_cycle(options.exports, own)) {
        texts.push_back(fmt::format("export {}: origin.nbd: {}",
                                    config::in_quotes(options.exports[cycle->exported].name),
                                    cycle->what));
    }
    const auto open = open_to_all(options);
    if (!open) return texts;
    for (const auto& listener : listeners_) {
        const auto address = listener->public_address();
        if (!address) continue;
        if (options.insecure) {
            spdlog::warn("{}", insecure_text(*address, *open));
        } else {
            texts.push_back(exposure_text(*address, *open));
        }
    }
    return texts;
}

}  // namespace gpunbd::server
