#include "tests/server/daemon/control_plane/model.hpp"

namespace gpunbd::server::test {

void Model::may_take_kept(const std::string& name) {
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

void Model::add_undecided(const std::string& name, const Model& before, const Model& after) {
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

}  // namespace gpunbd::server::test
