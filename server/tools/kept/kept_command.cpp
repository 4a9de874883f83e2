#include "server/tools/kept/kept_command.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "config/aligned_table.hpp"
#include "config/local_time_text.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/exit_code.hpp"
#include "server/json/report_failure.hpp"
#include "server/tools/status/admin_server.hpp"
#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kept_patience{60};  // a server that creates exports may answer late

const Failure not_a_list{"the reply is not a list of kept contents"};

client::Deadline deadline() { return client::Clock::now() + kept_patience; }

const json::value* member(const json::object& of, std::string_view key) {
    return of.if_contains(key);
}

std::string text_of(const json::object& one, std::string_view key) {
    const json::value* const value = member(one, key);
    return value != nullptr && value->is_string() ? sanitized(value->get_string()) : "-";
}

std::optional<std::int64_t> number_of(const json::object& one, std::string_view key) {
    const json::value* const value = member(one, key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? std::nullopt : std::optional(number);
}

std::string size_of(const json::object& one, std::string_view key) {
    const auto bytes = number_of(one, key);
    return bytes && *bytes >= 0 ? config::human_size(static_cast<std::uint64_t>(*bytes)) : "-";
}

std::string time_of(const json::object& one, std::string_view key) {
    const auto seconds = number_of(one, key);
    return seconds ? config::local_time_text(*seconds) : "-";
}

// If several servers run, the only one that keeps contents.
Or<AdminServer> find_keeping_server(const std::vector<std::string>& folders) {
    FoundServers found = find_servers(folders);
    if (found.servers.size() == 1) return std::move(found.servers[0]);
    if (found.servers.empty() && !found.closed.empty()) return none_found(found, folders);
    FoundServers keeping;
    keeping.silent = found.silent;
    for (std::size_t i = 0; i != found.servers.size(); ++i) {
        const auto answer = get(found.servers[i], {.target = "/api/v1/kept"}, deadline());
        if (const auto* const failed = std::get_if<Failure>(&answer)) {
            keeping.silent.push_back(failed->text);
        } else {
            keeping.servers.push_back(found.servers[i]);
            keeping.pids.push_back(found.pids[i]);
        }
    }
    if (keeping.servers.size() == 1) return std::move(keeping.servers[0]);
    if (!keeping.servers.empty()) return too_many(keeping);
    return Failure{
        fmt::format("no server that keeps contents answers{}{}; name one with --socket PATH",
                    keeping.silent.empty() ? "" : ": ", fmt::join(keeping.silent, "; "))};
}

Or<AdminServer> find_it(const KeptOptions& command, const std::optional<std::string>& configured,
                        const std::vector<std::string>& folders) {
    if (command.socket) return server_at(*command.socket);
    if (configured) return server_at(*configured);
    return find_keeping_server(folders);
}

// Returns the text to print.
Or<std::string> fetch(const KeptOptions& command, const AdminServer& server) {
    if (command.drop) {
        const Or<std::string> done =
            get(server,
                {.target = "/api/v1/kept/drop",
                 .json = json::serialize(json::object{{"name", *command.drop}})},
                deadline());
        if (const auto* const failed = std::get_if<Failure>(&done)) return *failed;
        if (command.json) {
            return json::serialize(json::object{{"dropped", *command.drop}}) + '\n';
        }
        return fmt::format("kept contents {}: dropped, and their memory is freed\n",
                           config::in_quotes(*command.drop));
    }
    Or<std::string> answer = get(server, {.target = "/api/v1/kept"}, deadline());
    const auto* const body = std::get_if<std::string>(&answer);
    if (body == nullptr) return answer;
    Or<std::string> table = kept_table(*body);
    if (!command.json || std::holds_alternative<Failure>(table)) return table;
    return *body + '\n';
}

}  // namespace

Or<std::string> kept_table(std::string_view text) {
    boost::system::error_code error;
    const json::value value = json::parse(text, error);
    const json::value* const kept =
        !error && value.is_object() ? member(value.get_object(), "kept") : nullptr;
    if (kept == nullptr || !kept->is_array()) return not_a_list;
    if (kept->get_array().empty()) return std::string("no contents are kept\n");
    std::vector<std::vector<std::string>> rows{
        {"EXPORT", "SIZE", "USED", "DEVICES", "SINCE", "INSTANCE", "STATE"}};
    for (const json::value& each : kept->get_array()) {
        if (!each.is_object()) return not_a_list;
        const json::object& one = each.get_object();
        const json::value* const name = member(one, "name");
        const bool named = name != nullptr && name->is_string();
        rows.push_back({named ? config::in_quotes(std::string_view(name->get_string())) : "-",
                        size_of(one, "size"), size_of(one, "used"), text_of(one, "devices"),
                        time_of(one, "made"), text_of(one, "instance"), text_of(one, "state")});
    }
    return config::aligned_table(rows);
}

int run_kept(const KeptOptions& command, const std::optional<std::string>& configured,
             const std::vector<std::string>& folders) {
    const Or<std::string> text = repeat_while_replaced([&]() -> Or<std::string> {
        const Or<AdminServer> server = find_it(command, configured, folders);
        if (const auto* const failed = std::get_if<Failure>(&server)) return *failed;
        return fetch(command, std::get<AdminServer>(server));
    });
    if (const auto* const failed = std::get_if<Failure>(&text)) {
        return server::report_failure("kept", with_remedy(*failed), command.json,
                                      server::exit_failure);
    }
    fmt::print("{}", std::get<std::string>(text));
    return 0;
}

}  // namespace gpunbd::status
