#include "server/tools/ping/ping.hpp"

#include <fmt/format.h>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/tools/client/call.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::server {

Or<std::string> ping(const client::NbdTarget& target, std::chrono::seconds within) {
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
    const auto& facts = std::get<client::ExportFacts>(answer);
    const bool read_only = (facts.flags & protocol::transmission_flag::read_only) != 0;
    return fmt::format("export {} answers: {}{}\n", config::in_quotes(endpoint.name),
                       config::human_size(facts.size), read_only ? ", read-only" : "");
}

}  // namespace gpunbd::server
