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

// Pages that are shared have one id. Contents 0: a hole.
struct ModelPage {
    std::uint64_t contents = 0;
    std::uint64_t id = 0;
};
using ModelPages = std::vector<ModelPage>;

struct ModelExport {
    ModelPages pages = {};
    bool keep = false;
    bool read_only = false;
    bool run_time = false;
    bool is_clone = false;
    std::string restored_from = {};      // the file of the key `restore`
    std::uint64_t configured_pages = 0;  // what the next server makes, if nothing is kept

    std::uint64_t used() const {
        return static_cast<std::uint64_t>(
            std::ranges::count_if(pages, [](const ModelPage& each) { return each.contents != 0; }));
    }
    void resize(std::uint64_t count) {
        pages.resize(count);
        if (run_time) configured_pages = count;
    }
};

using Candidates = std::vector<std::optional<ModelExport>>;  // unset: there is none

struct Model {
    std::map<std::string, ModelExport> exports;
    std::map<std::string, std::string> templates;  // and their sources
    // Kept contents without an export. Several candidates: what they are is not known.
    std::map<std::string, Candidates> grace;
    // What exports may be after an interrupted change, until it is seen.
    std::map<std::string, Candidates> doubt;
    // Kept contents that may be there or not.
    std::map<std::string, Candidates> unsure;
    std::set<std::string> closed;    // exports that clients cannot open for now
    std::set<std::uint64_t> claims;  // in effect
};

}  // namespace gpunbd::server::test
