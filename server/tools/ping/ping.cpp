#include "server/tools/ping/ping.hpp"

#include "server/tools/client/call.hpp"

namespace gpunbd::server {

Or<PingAnswer> ping(const client::NbdTarget& target, std::chrono::seconds within) {
    const auto until = client::Clock::now() + within;
    auto found = client::find_endpoint(target, client::TlsBy::process);
    if (auto* failed = std::get_if<Failure>(&found)) return std::move(*failed);
    const auto& endpoint = std::get<client::Endpoint>(found);
    auto called = client::call(endpoint, until);
    if (auto* failed = std::get_if<Failure>(&called)) return std::move(*failed);
    auto& stream = std::get<client::Stream>(called);
    auto answer = client::query_export(stream, protocol::OptionType::info, endpoint.name);
    if (auto* failed = std::get_if<Failure>(&answer)) return std::move(*failed);
    client::leave(stream);
    return PingAnswer{endpoint.name, std::get<client::ExportFacts>(answer)};
}

}  // namespace gpunbd::server
