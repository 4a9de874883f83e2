#include "server/exports/reload_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/quote.hpp"
#include "config/size.hpp"

namespace gpunbd::server {

namespace {

using Made = std::shared_ptr<const Export>;

// Sessions hold the export that they opened, or an earlier one of the same volume. One more
// reference is held by the list that contains `old`.
long clients_of(const Made& old) {
    long clients = old.use_count() - 1;
    for (const auto& earlier : old->earlier) clients += earlier.use_count();
    return clients;
}

std::string what_becomes_of(const Made& old, const char* what) {
    if (old->options.origin.is_writable()) return "are written to its origin";
    if (old->options.has_origin()) return "are in its origin";
    if (old->contents_outlive_server()) return "are kept for keeping.grace";
    const long clients = clients_of(old);
    if (clients == 0) return fmt::format("{} now", what);
    return fmt::format("{} when {} client{} gone", what, clients, clients == 1 ? " has" : "s have");
}

// "access, rates": only these keys, or all others.
std::string differences(const config::ExportOptions& a, const config::ExportOptions& b,
                        bool at_once) {
    std::vector<const char*> keys;
    if (at_once) {
        if (a.access != b.access) keys.push_back("access");
        if (a.read_only != b.read_only) keys.push_back("read_only");
        if (a.rates != b.rates) keys.push_back("rates");
        if (a.ublk != b.ublk) keys.push_back("ublk");
        if (a.rates_per_peer != b.rates_per_peer) keys.push_back("rates_per_peer");
        if (a.save != b.save) keys.push_back("save");
        return fmt::format("{}", fmt::join(keys, ", "));
    }
    if (a.size != b.size) keys.push_back("size");
    if (a.devices != b.devices) keys.push_back("devices");
    if (a.layout != b.layout) keys.push_back("layout");
    if (a.stripe_size != b.stripe_size) keys.push_back("stripe_size");
    if (a.provision != b.provision) keys.push_back("provision");
    if (a.page_size != b.page_size) keys.push_back("page_size");
    if (a.origin != b.origin) keys.push_back("origin");
    if (a.restore != b.restore) keys.push_back("restore");
    if (a.description != b.description) keys.push_back("description");
    if (a.keep != b.keep) keys.push_back("keep");
    if (a.swap != b.swap) keys.push_back("swap");
    if (a.block_size != b.block_size) keys.push_back("block_size");
    if (a.tls_required != b.tls_required) keys.push_back("tls");
    if (a.max_connections != b.max_connections) keys.push_back("max_connections");
    if (a.max_connections_per_peer != b.max_connections_per_peer) {
        keys.push_back("max_connections_per_peer");
    }
    return fmt::format("{}", fmt::join(keys, ", "));
}

ReloadLine compare(const Made& old, const Made& now) {
    const std::string& name = now->info.name;
    const std::string quoted = config::in_quotes(name);
    if (old->volume != now->volume && now->options.has_origin()) {
        return {true, name,
                fmt::format("reload: export {} has the contents of {} now ({} changed)", quoted,
                            now->options.origin.path(),
                            differences(old->options, now->options, false))};
    }
    if (old->volume != now->volume) {
        return {true, name,
                fmt::format("reload: export {} is replaced by a new, empty one ({} changed); "
                            "the old contents {}",
                            quoted, differences(old->options, now->options, false),
                            what_becomes_of(old, "are lost"))};
    }
    if (old->options == now->options) {
        return {false, name, fmt::format("reload: export {} is unchanged", quoted)};
    }
    if (now->options.keep && !old->options.keep && !now->contents_outlive_server()) {
        return {true, name,
                fmt::format("reload: the contents of export {} will be lost at the end of this "
                            "server, because they were created without keep; the next server keeps "
                            "its contents",
                            quoted)};
    }
    if (old->info.name != name) {
        return {false, name,
                fmt::format("export {} has the name {} now; its clients stay connected",
                            config::in_quotes(old->info.name), quoted)};
    }
    const std::string later = differences(old->options, now->options, false);
    const std::string at_once = differences(old->options, now->options, true);
    return {false, name,
            fmt::format("reload: export {} keeps its contents; {}{}{}", quoted,
                        later.empty() ? "" : later + " changed, for new clients",
                        later.empty() || at_once.empty() ? "" : "; ",
                        at_once.empty() ? "" : at_once + " changed, for all clients")};
}

}  // namespace

std::vector<ReloadLine> report_exports(const ExportRegistry::Exports& before,
                                       const ExportRegistry::Exports& after, Unchanged unchanged) {
    ExportLookup lookup(before);
    // An export that was renamed has the same use.
    const auto old_of = [&](const Made& now) -> const Made* {
        if (const Made* const found = lookup.find(now->info.name)) return found;
        const auto renamed = std::ranges::find(before, now->use, &Export::use);
        return renamed == before.end() ? nullptr : &*renamed;
    };
    std::vector<const Made*> earlier;  // of `after`; null: new
    earlier.reserve(after.size());
    std::vector<bool> stays(before.size());
    for (const Made& now : after) {
        const Made* const old = earlier.emplace_back(old_of(now));
        if (old != nullptr) stays[static_cast<std::size_t>(old - before.data())] = true;
    }
    std::vector<ReloadLine> lines;
    for (const Made& old : before) {
        if (stays[static_cast<std::size_t>(&old - before.data())]) continue;
        lines.push_back(
            {true, old->info.name,
             fmt::format("reload: export {} is removed; its contents {}",
                         config::in_quotes(old->info.name), what_becomes_of(old, "are lost"))});
    }
    for (const Made& now : after) {
        const Made* const old = earlier[static_cast<std::size_t>(&now - after.data())];
        if (unchanged == Unchanged::omit && old != nullptr && *old == now) continue;
        lines.push_back(old != nullptr
                            ? compare(*old, now)
                            : ReloadLine{false, now->info.name,
                                         fmt::format("reload: export {} is new, {}",
                                                     config::in_quotes(now->info.name),
                                                     config::human_size(now->info.size))});
    }
    return lines;
}

std::vector<std::string> keys_that_wait(const config::Options& running,
                                        const config::Options& loaded) {
    std::vector<std::string> keys;
    if (running.tcp != loaded.tcp || running.unix_sockets != loaded.unix_sockets ||
        running.vsock != loaded.vsock) {
        keys.emplace_back("listeners");
    }
    if (running.pipeline != loaded.pipeline) keys.emplace_back("pipeline");
    if (running.threads != loaded.threads) keys.emplace_back("threads");
    if (running.limits != loaded.limits) keys.emplace_back("limits");
    if (running.keeping.socket != loaded.keeping.socket) keys.emplace_back("keeping.socket");
    if (running.admin != loaded.admin) keys.emplace_back("admin");
    if (running.log != loaded.log) keys.emplace_back("log");
    if (running.trace != loaded.trace) keys.emplace_back("trace");
    if (running.state != loaded.state) keys.emplace_back("state");
    return keys;
}

}  // namespace gpunbd::server
