#include "config/client_clones.hpp"

#include <algorithm>
#include <vector>

#include "config/network.hpp"
#include "config/rules.hpp"

namespace gpunbd::config {

namespace {

constexpr std::size_t max_client_id = 64;

std::string prefix_of(const ExportOptions& its_template) { return its_template.name + '/'; }

// The rule for this address only. Empty: the rule does not match the address.
std::optional<AccessRule> for_address(AccessRule rule, const IpAddress& address) {
    if (rule.uid || rule.gid || rule.cid) return rule;  // not for clients with an address
    if (rule.network && !rule.network->holds(address)) return std::nullopt;
    rule.network = Network{address, address.bits()};
    return rule;
}

std::optional<AccessRule> for_tls_name(AccessRule rule, std::string_view name) {
    if (rule.psk_user) return std::nullopt;
    if (rule.tls_name && rules::lower_case(*rule.tls_name) != name) return std::nullopt;
    rule.tls_name = name;
    return rule;
}

std::vector<AccessRule> rules_of_clone(const ExportOptions& its_template, std::string_view client) {
    std::vector<AccessRule> rules = its_template.access;
    const ClientId id = its_template.clone_per_client.name;
    if (id == ClientId::machine) return rules;
    if (rules.empty()) rules.emplace_back();  // which is restricted below
    const auto address =
        id == ClientId::address ? parse_ip(std::string(client)) : std::optional<IpAddress>();
    std::vector<AccessRule> out;
    for (AccessRule& each : rules) {
        auto restricted = address ? for_address(std::move(each), *address)
                                  : for_tls_name(std::move(each), client);
        if (restricted) out.push_back(*std::move(restricted));
    }
    // An empty list would permit all clients. No client has an address and a context id.
    if (out.empty()) {
        AccessRule& none = out.emplace_back();
        none.network = Network{};
        none.cid = 0;
    }
    return out;
}

}  // namespace

bool is_client_id(std::string_view text) {
    const auto is_good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("._@:-").find(c) != std::string_view::npos;
    };
    return !text.empty() && text.size() <= max_client_id && text[0] != '.' && text[0] != '-' &&
           std::ranges::all_of(text, is_good);
}

std::string name_of_clone(const ExportOptions& its_template, std::string_view client) {
    return prefix_of(its_template).append(client);
}

std::optional<std::string> machine_of(const ExportOptions& its_template, std::string_view name) {
    const std::string prefix = prefix_of(its_template);
    if (its_template.clone_per_client.name != ClientId::machine || !name.starts_with(prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(prefix.size());
    if (!is_client_id(name)) return std::nullopt;
    return std::string(name);
}

ExportOptions options_of_clone(const ExportOptions& its_template, std::string_view client) {
    ExportOptions out = its_template;
    const CloneTemplate& wanted = its_template.clone_per_client;
    out.name = name_of_clone(its_template, client);
    out.clone_of = wanted.of;
    if (wanted.size) out.size = Size{.bytes = *wanted.size};
    out.access = rules_of_clone(its_template, client);
    out.clone_per_client = {};
    out.provenance = {.run_time = true, .made_by = its_template.name, .client_id = wanted.name};
    return out;
}

ExportOptions updated_clone(const ExportOptions& clone, const ExportOptions& its_template) {
    if (clone.provenance.client_id != its_template.clone_per_client.name) return clone;
    const std::string prefix = prefix_of(its_template);
    ExportOptions out =
        options_of_clone(its_template, std::string_view(clone.name).substr(prefix.size()));
    out.clone_of = clone.clone_of;
    out.size = clone.size;
    out.keep = clone.keep;
    out.provenance = clone.provenance;
    return out;
}

ExportOptions updated_clone(const ExportOptions& exported, const ExportsByName& exports) {
    if (exported.provenance.made_by.empty()) return exported;
    const ExportOptions* const made_by = exports.find(exported.provenance.made_by);
    if (made_by == nullptr || !made_by->is_template()) return exported;
    return updated_clone(exported, *made_by);
}

}  // namespace gpunbd::config
