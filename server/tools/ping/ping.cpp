#include "server/tools/ping/ping.hpp"

#include "server/tools/client/handshake.hpp"

namespace gpunbd::server {

Expected<PingAnswer, Failure> ping(const client::NbdTarget& target, std::chrono::seconds within) {
    const auto until = client::Clock::now() + within;
    auto found = client::find_endpoint(target, client::TlsBy::process);
    if (!found) return std::move(found).error();
    const auto& endpoint = *found;
    auto called = client::call(endpoint, until);
    if (!called) return std::move(called).error();
    auto& stream = *called;
    auto answer = client::query_export(stream, protocol::OptionType::info, endpoint.name);
    if (!answer) return std::move(answer).error();
    client::leave(stream);
    return PingAnswer{endpoint.name, *answer};
}

}  // namespace gpunbd::server
