// The conditions of access rules.
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>

#include "config/quote.hpp"
#include "config/rules.hpp"

namespace gpunbd::config::rules {

namespace {

constexpr std::uint64_t max_id = 4'294'967'294;  // the next number means "no id"

bool is_number(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_printable(std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// Whether a certificate or a file of keys can contain this name.
bool is_name(std::string_view text) {
    return !text.empty() && is_printable(text) && text.size() <= max_text &&
           find_invalid_utf8(text) == std::string_view::npos;
}

template <typename Find>
Checked<Account> account(std::string_view text, const char* what, const char* database, Find find) {
    if (is_number(text)) {
        const auto number = integer(text, {0, max_id});
        if (const auto* wrong = std::get_if<Wrong>(&number)) return *wrong;
        return Account{static_cast<std::uint32_t>(std::get<std::uint64_t>(number)),
                       std::string(text)};
    }
    if (!text.empty() && is_printable(text)) {
        if (const auto id = find(std::string(text))) return Account{*id, std::string(text)};
    }
    return Wrong{
        fmt::format("there is no {} {} on this machine; write a number, or name one of "
                    "`getent {}`",
                    what, in_quotes(text), database)};
}

}  // namespace

Checked<Network> network(std::string_view text) {
    const std::string quoted = in_quotes(text);
    const auto zone = text.find('%');
    if (zone != std::string_view::npos) {
        const auto end = std::min(text.find('/', zone), text.size());
        return Wrong{fmt::format("{} has a zone, which rules do not support; leave {} out", quoted,
                                 in_quotes(text.substr(zone, end - zone)))};
    }
    const auto slash = text.find('/');
    const auto address = parse_ip(std::string(text.substr(0, slash)));
    if (!address) {
        return Wrong{
            fmt::format("{} is not a network; write for example 10.0.0.0/8, "
                        "2001:db8::/32, or one numeric address",
                        quoted)};
    }
    std::uint32_t prefix = address->bits();
    if (slash != std::string_view::npos) {
        const auto number = integer(text.substr(slash + 1), {0, address->bits()});
        if (std::holds_alternative<Wrong>(number)) {
            return Wrong{
                fmt::format("{} has an invalid prefix; write a whole number from 0 to {} "
                            "after the '/', for example {}/{}",
                            quoted, address->bits(), address->text(), address->bits())};
        }
        prefix = static_cast<std::uint32_t>(std::get<std::uint64_t>(number));
    }
    if (address->mapped() && prefix >= mapped_prefix) {
        return Wrong{
            fmt::format("{} is an IPv4-mapped address, and clients match as IPv4; "
                        "write {}",
                        quoted, network_of(address->unmapped(), prefix - mapped_prefix).text())};
    }
    const Network out = network_of(*address, prefix);
    if (out.address != *address) {
        return Wrong{
            fmt::format("{} has bits set after the first {}; write {} for the network, or "
                        "{} for the one address",
                        quoted, prefix, out.text(), address->text())};
    }
    return out;
}

Checked<Account> user(std::string_view text) {
    return account(text, "user", "passwd",
                   [](const std::string& name) -> std::optional<std::uint32_t> {
                       const passwd* const entry = ::getpwnam(name.c_str());
                       if (entry == nullptr) return std::nullopt;
                       return entry->pw_uid;
                   });
}

Checked<Account> group(std::string_view text) {
    return account(text, "group", "group",
                   [](const std::string& name) -> std::optional<std::uint32_t> {
                       const ::group* const entry = ::getgrnam(name.c_str());
                       if (entry == nullptr) return std::nullopt;
                       return entry->gr_gid;
                   });
}

Checked<std::string> tls_name(std::string_view text) {
    if (is_name(text)) return std::string(text);
    return Wrong{
        fmt::format("{} is not a name that a certificate can have; write for example "
                    "client.example.com",
                    in_quotes(text))};
}

Checked<std::string> psk_user(std::string_view text) {
    if (is_name(text) && text.find(':') == std::string_view::npos) return std::string(text);
    return Wrong{
        fmt::format("{} is not a user of a file of shared keys; write the text before "
                    "the ':' of a line, for example alice",
                    in_quotes(text))};
}

}  // namespace gpunbd::config::rules
