
#include "tests/server/daemon/control_plane/page_contents.hpp"
#include "tests/server/daemon/control_plane/sequence.hpp"

namespace gpunbd::server::test {

namespace {

using std::to_string;

constexpr int memory_looks = 2000;  // until memory that is not released counts as lost

template <typename Names>
std::string list_of(const Names& names) {
    std::string all;
    for (const std::string& each : names) all += (all.empty() ? "" : " ") + each;
    return "{" + all + "}";
}

// The first page that differs; unset: there is none.
std::optional<std::uint64_t> difference(const Export& exported, const ModelExport& model) {
    const std::vector<std::uint64_t> pages = read_pages(*exported.volume);
    for (std::uint64_t i = 0; i != model.pages.size(); ++i) {
        if (i >= pages.size() || pages[i] != model.pages[i].contents) return i;
    }
    return std::nullopt;
}

bool equals(const Export& exported, const ModelExport& model) {
    return exported.info.size == model.pages.size() * model_page && !difference(exported, model);
}

bool can_open(const Export& exported) { return exported.use->enter("a client").lease != nullptr; }

}  // namespace

void Sequence::check() {
    for (const auto& [name, candidates] : model_.undecided) decide(name, candidates);
    model_.undecided.clear();
    const auto exports = server_->context.exports.snapshot();
    for (const auto& [name, unused] : model_.exports) {
        if (!served(name) && !model_.closed.contains(name)) throw Violation(name + " is lost");
    }
    for (const auto& each : *exports) {
        const std::string& name = each->info.name;
        if (model_.closed.contains(name)) {
            if (can_open(*each)) throw Violation("a client opens " + name + ", which is restored");
            continue;
        }
        const auto model = model_.find(name);
        if (!model) throw Violation("there is an export " + name);
        check(*each, *model);
    }
    if (!model_.closed.empty()) return;
    check_kept();
    check_claims();
    check_memory();
}

void Sequence::check(const Export& exported, const ModelExport& model) const {
    const std::string& name = exported.info.name;
    if (!can_open(exported)) throw Violation(name + " is closed");
    if (!exported.volume->complete()) throw Violation(name + " is incomplete, and open");
    if (exported.info.size != model.pages.size() * model_page) {
        throw Violation(name + " has " + to_string(exported.info.size / model_page) +
                        " pages instead of " + to_string(model.pages.size()));
    }
    if (const auto page = difference(exported, model)) {
        throw Violation("page " + to_string(*page) + " of " + name + " is not " +
                        to_string(model.pages[*page].contents & 0xfffff));
    }
}

// The model has the first of these states that the server has.
void Sequence::decide(const std::string& name, const Candidates& candidates) {
    const auto exported = served(name);
    model_.exports.erase(name);
    for (const auto& each : candidates) {
        if (each ? !exported || !equals(*exported, *each) : exported != nullptr) continue;
        if (each) model_.exports[name] = *each;
        return;
    }
    throw Violation(
        name + (exported ? " has neither the state before nor that after the change" : " is lost"));
}

void Sequence::check_kept() {
    std::multiset<std::string> used;
    std::set<std::string> unused;
    for (const auto& each : server_->context.kept.contents->summaries()) {
        if (each.state == "in use" || each.state == "being restored") {
            used.insert(each.name);
        } else {
            unused.insert(each.name);
        }
    }
    std::multiset<std::string> wanted;
    for (const auto& [name, each] : model_.exports) {
        if (each.keep) wanted.insert(name);
    }
    if (used != wanted) {
        throw Violation("contents in use: " + list_of(used) + " instead of " + list_of(wanted));
    }
    for (const auto& [name, candidates] : model_.possibly_kept) {
        model_.kept.erase(name);
        if (unused.contains(name)) model_.kept[name] = candidates;
    }
    model_.possibly_kept.clear();
    std::set<std::string> kept;
    for (const auto& [name, each] : model_.kept) kept.insert(name);
    if (unused != kept) {
        throw Violation("contents without an export: " + list_of(unused) + " instead of " +
                        list_of(kept));
    }
    check_supervisor(used.size(), unused.size());
}

// The supervisor has a table for each of the kept contents. `used`: their number with an export;
// `unused`: without one.
void Sequence::check_supervisor(std::size_t used, std::size_t unused) const {
    std::uint64_t tables = 0;
    std::uint64_t options = 0;
    for (const std::string& each : supervisor_.names()) {
        tables += contains(each, "/table") ? 1 : 0;
        options += contains(each, "/export/") ? 1 : 0;
    }
    if (tables < used + unused || (unused == 0 && tables != used)) {
        throw Violation("the supervisor has " + to_string(tables) + " tables");
    }
    std::uint64_t wanted = model_.templates.size() - 1;  // one is in the configuration
    for (const auto& [name, each] : model_.exports) {
        wanted += each.run_time && (each.keep || !each.is_clone) ? 1 : 0;
    }
    if (options != wanted) {
        throw Violation("the supervisor has the options of " + to_string(options) +
                        " exports instead of " + to_string(wanted));
    }
}

void Sequence::check_claims() const {
    DeviceStatus status{.id = "host"};
    server_->reclaim->add_to(status);
    std::set<std::uint64_t> claims;
    for (const ClaimStatus& each : status.claims) claims.insert(each.id);
    if (claims != model_.claims) {
        throw Violation("there are " + to_string(claims.size()) + " claims instead of " +
                        to_string(model_.claims.size()));
    }
    if (claims.empty() && status.limit) throw Violation("there is a limit without a claim");
}

void Sequence::check_memory() {
    server_->context.disposal.wait();
    std::set<std::uint64_t> pages;
    const auto count = [&](const ModelExport& each) {
        for (const ModelPage& page : each.pages) {
            if (page.contents != 0) pages.insert(page.id);
        }
    };
    for (const auto& [name, each] : model_.exports) count(each);
    for (const auto& [name, candidates] : model_.kept) {
        if (candidates.size() != 1 || !candidates.front()) return;
        count(*candidates.front());
    }
    std::uint64_t mapped = 0;
    std::uint64_t allocated = 0;
    std::uint64_t counted = 0;
    int looks = 0;
    const auto is_expected = [&] {
        const std::uint64_t used = mapped / model_page;
        return pages.size() <= used && used <= pages.size() + extra_pages_;
    };
    server_->run_until([&] {
        mapped = allocated = 0;
        std::set<const storage::PagePool*> pools;
        for (const auto& volume : server_->context.disposal.volumes()) {
            for (std::uint32_t i = 0; i != volume->pools(); ++i) {
                storage::PagePool& pool = volume->pool(i);
                if (!pools.insert(&pool).second) continue;
                mapped += pool.memory().pages().mapped_pages() * volume->page_size();
                if (i < volume->layout_devices()) allocated += pool.memory().usage().allocated;
            }
        }
        counted = server_->context.devices.open("host").budget().used();
        return ++looks == memory_looks || (is_expected() && counted == allocated);
    });
    if (!is_expected()) {
        throw Violation("exports use " + to_string(mapped / model_page) + " pages instead of " +
                        to_string(pages.size()));
    }
    if (counted != allocated) {
        throw Violation("the device counts " + to_string(counted) + " bytes instead of " +
                        to_string(allocated));
    }
}

}  // namespace gpunbd::server::test
