// What must be true of the exports of a server. It states rules, not how the server keeps them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpunbd::server::test {

constexpr std::uint64_t model_page = 64 << 10;  // bytes

// Two pages with one id share memory.
struct ModelPage {
    std::uint64_t contents = 0;  // 0: a hole
    std::uint64_t id = 0;
};
using ModelPages = std::vector<ModelPage>;

struct ModelExport {
    ModelPages pages = {};
    bool keep = false;
    bool read_only = false;
    bool run_time = false;
    bool is_clone = false;
    std::string restored_from = {};  // the file of the key `restore`
    std::uint64_t configured_pages =
        0;  // of new contents, which the next server makes if none are kept

    bool is_empty() const {
        return std::ranges::all_of(pages, [](const ModelPage& each) { return each.contents == 0; });
    }
    bool has_data_from(std::uint64_t page) const {
        const auto first = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(page, pages.size()));
        return std::any_of(pages.begin() + first, pages.end(),
                           [](const ModelPage& each) { return each.contents != 0; });
    }
    void resize(std::uint64_t count) {
        pages.resize(count);
        if (run_time) configured_pages = count;
    }
};

// Unset: there is no export.
using Candidates = std::vector<std::optional<ModelExport>>;

struct Model {
    std::map<std::string, ModelExport> exports;
    std::map<std::string, std::string> templates;  // with their sources
    std::set<std::string> closed;                  // exports that are being restored
    std::set<std::uint64_t> claims;                // in effect
    // Kept contents without an export. Several candidates: either is possible.
    std::map<std::string, Candidates> kept;
    // After an interrupted change, until the next check decides: the exports, and kept contents
    // that may be there or not.
    std::map<std::string, Candidates> undecided;
    std::map<std::string, Candidates> possibly_kept;

    std::optional<ModelExport> find(const std::string& name) const {
        const auto found = exports.find(name);
        return found == exports.end() ? std::nullopt : std::optional(found->second);
    }
    bool has_templates_of(const std::string& name) const {
        return std::ranges::any_of(templates,
                                   [&](const auto& each) { return each.second == name; });
    }
    // An export of this name was added, which may get earlier contents of the name back.
    void may_take_kept(const std::string& name) {
        const auto found = kept.find(name);
        if (found == kept.end()) return;
        const ModelExport added = exports.at(name);
        Candidates& candidates = undecided[name];
        candidates.emplace_back(added);
        for (const auto& each : found->second) {
            if (!each) continue;
            ModelExport again = added;
            again.pages = each->pages;
            candidates.emplace_back(again);
        }
        possibly_kept[name] = found->second;
    }
    // The interrupted change may have had its effect on this export, or not.
    void add_undecided(const std::string& name, const Model& before, const Model& after) {
        Candidates& candidates = undecided[name];
        Candidates contents;
        for (const Model* each : {&before, &after}) {
            const auto exported = each->find(name);
            candidates.push_back(exported);
            if (exported && exported->keep) contents.push_back(exported);
            if (const auto found = each->kept.find(name); found != each->kept.end()) {
                contents.insert(contents.end(), found->second.begin(), found->second.end());
            }
        }
        if (const auto found = after.undecided.find(name); found != after.undecided.end()) {
            candidates.insert(candidates.end(), found->second.begin(), found->second.end());
        }
        if (!contents.empty()) possibly_kept[name] = contents;
    }
};

}  // namespace gpunbd::server::test
