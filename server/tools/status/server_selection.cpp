#include "server/tools/status/server_selection.hpp"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>

#include "config/command_line/store.hpp"
#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::status {
namespace {

constexpr std::string_view url_details =
    R"(HTTPS is not supported: use a Unix socket or a tunnel.)";

using config::into;

// HOST[:PORT]; an IPv6 address is in brackets.
config::rules::Checked<ServerSelection::Url> parse_host_and_port(std::string_view text) {
    ServerSelection::Url out{.host = {}, .port = "80"};
    const bool brackets = text.starts_with('[');
    const std::size_t end = brackets ? text.find(']') : text.find(':');
    if (brackets && end == std::string_view::npos)
        return config::rules::Wrong{"the [ has no matching ]"};
    const std::string_view host = text.substr(0, end).substr(brackets ? 1 : 0);
    std::string_view rest = end == std::string_view::npos ? "" : text.substr(end);
    if (brackets && !rest.empty()) rest.remove_prefix(1);
    if (!rest.empty()) {
        const auto port =
            rest[0] == ':'
                ? config::rules::port(rest.substr(1))
                : config::rules::Wrong{fmt::format("{} follows the host; write :PORT there",
                                                   config::in_quotes(rest))};
        if (const auto* wrong = std::get_if<config::rules::Wrong>(&port)) {
            return *wrong;
        }
        out.port = rest.substr(1);
    }
    const auto checked = config::rules::host_name(host);
    if (const auto* wrong = std::get_if<config::rules::Wrong>(&checked)) {
        return *wrong;
    }
    out.host = host;
    return out;
}

config::rules::Checked<ServerSelection::Url> parse_url(std::string_view url) {
    constexpr std::string_view scheme = "http://";
    if (url.starts_with("https://")) {
        return config::rules::Wrong{
            "https is not supported; use --socket on the server's machine, or --url http:// "
            "through a tunnel such as ssh -L"};
    }
    if (!url.starts_with(scheme)) {
        return config::rules::Wrong{
            fmt::format("{} is not a URL; write for example --url http://127.0.0.1:9809",
                        config::in_quotes(url))};
    }
    url.remove_prefix(scheme.size());
    if (url.ends_with('/')) url.remove_suffix(1);
    return parse_host_and_port(url);
}

}  // namespace

std::vector<config::Flag> server_flags(ServerSelection& server, std::vector<config::Flag> more) {
    std::vector<config::Flag> out{{.name = "--socket",
                                   .takes = "PATH",
                                   .example = "/run/gpunbd/admin-4711.sock",
                                   .brief = "Admin socket of the server",
                                   .more = ".",
                                   .called = "--admin-socket --unix --path",
                                   .store = into(server.socket, config::rules::unix_path)},
                                  {.name = "--url",
                                   .takes = "URL",
                                   .example = "http://127.0.0.1:9809",
                                   .brief = "Admin endpoint of the server over TCP",
                                   .more = ": http://HOST:PORT.",
                                   .called = "--host --address --server --uri",
                                   .excludes = {"--socket"},
                                   .why_not = "both name the server",
                                   .details = url_details,
                                   .store = into(server.url, parse_url)},
                                  {.name = "--token",
                                   .takes = config::file_argument,
                                   .example = "/etc/gpunbd/admin.token",
                                   .brief = "With --url: the token of the endpoint",
                                   .more = ", in a file that only its owner and group can read.",
                                   .called = "--bearer --password --key",
                                   .needs = "--url",
                                   .store = into(server.token, config::rules::file_path)}};
    out.insert(out.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
    return out;
}

}  // namespace gpunbd::status
