#include "server/daemon/retained_sockets.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/crc.hpp>

#include "server/net/listener.hpp"
#include "server/supervisor/descriptor_name.hpp"

namespace gpunbd::server {

namespace {

const std::string socket_prefix = std::string(own_prefix) + "listen/";

}  // namespace

// Addresses can be longer than names and contain other characters.
std::string RetainedSockets::name(const std::string& address) {
    boost::crc_optimal<64, 0x42F0E1EBA9EA3693> crc;
    crc.process_bytes(address.data(), address.size());
    return fmt::format("{}{:016x}", socket_prefix, crc.checksum());
}

std::optional<OwnedFd> RetainedSockets::take(const std::string& address) {
    std::vector<OwnedFd> handed_over = handed_over_.take(name(address));
    if (!outlive_ && !handed_over.empty()) forget(name(address));
    for (OwnedFd& each : handed_over) {
        if (is_listening(each.get())) return std::move(each);
    }
    return std::nullopt;
}

void RetainedSockets::keep(const std::string& address, int fd) {
    if (!outlive_) return;
    const std::string its_name = name(address);
    auto wrong = store_.remove(its_name);
    if (!wrong) wrong = store_.store(its_name, fd);
    if (!wrong) return;
    spdlog::warn("{}: the socket cannot be stored, so clients are refused during a restart: {}",
                 address, *wrong);
}

void RetainedSockets::forget_the_rest() {
    for (const std::string& each : handed_over_.names()) {
        if (!each.starts_with(socket_prefix)) continue;
        handed_over_.take(each);
        forget(each);
    }
}

void RetainedSockets::forget(const std::string& its_name) {
    if (const auto wrong = store_.remove(its_name)) spdlog::warn("{}", *wrong);
}

}  // namespace gpunbd::server
