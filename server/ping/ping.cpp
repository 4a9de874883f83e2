#include "server/ping/ping.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/client/call.hpp"
#include "server/client/handshake.hpp"

namespace gpunbd::server {

namespace {

Or<client::Callee> callee_of(const std::string& uri) {
    try {
        return client::find_callee(client::parse_nbd_uri(uri), client::TlsBy::process);
    } catch (const std::runtime_error& error) {
        return Failure{error.what()};
    }
}

}  // namespace

Or<std::string> ping(const config::PingCommand& command) {
    const auto until = client::Clock::now() + std::chrono::seconds(command.timeout);
    auto found = callee_of(command.uri);
    if (auto* failed = std::get_if<Failure>(&found)) return std::move(*failed);
    const auto& callee = std::get<client::Callee>(found);
    auto called = client::call(callee, until);
    if (auto* failed = std::get_if<Failure>(&called)) return std::move(*failed);
    auto& stream = std::get<client::Stream>(called);
    auto told = client::ask_about(stream, protocol::OptionType::info, callee.name);
    if (auto* failed = std::get_if<Failure>(&told)) return std::move(*failed);
    client::leave(stream);
    const auto& facts = std::get<client::ExportFacts>(told);
    const bool read_only = (facts.flags & protocol::transmission_flag::read_only) != 0;
    return fmt::format("export {} answers: {}{}\n", config::in_quotes(callee.name),
                       config::human_size(facts.size), read_only ? ", read-only" : "");
}

}  // namespace gpunbd::server
