// Passes the parts of one volume to the supervisor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "server/handover/stored_contents.hpp"
#include "storage/pages/slab_retainer.hpp"

namespace gpunbd::server {

class ContentsRetainer final : public storage::SlabRetainer {
 public:
    // `clone`: as in ContentsPart.
    ContentsRetainer(std::shared_ptr<StoredContents> stored, std::string clone)
        : stored_(std::move(stored)), clone_(std::move(clone)) {
        stored_->add_volume(clone_);
    }

    bool keep_table(const OwnedFd& descriptor) noexcept override {
        return forgotten_ || stored_->keep(table_, descriptor);
    }
    bool keep_directory(const OwnedFd& descriptor) noexcept override {
        return stored_->keep(directory_, descriptor);
    }
    bool keep(std::uint32_t device, std::uint32_t slab,
              const OwnedFd& descriptor) noexcept override {
        return stored_->keep(ContentsPart::slab_of(device, slab), descriptor);
    }
    void forget(std::uint32_t device, std::uint32_t slab) noexcept override {
        stored_->forget(ContentsPart::slab_of(device, slab));
    }
    // Returns true until forget_volume() is called. Never waits for the supervisor.
    bool keeps() const noexcept override { return !forgotten_; }
    // Removes the volume from the supervisor.
    void forget_volume() noexcept {
        forgotten_ = true;
        stored_->remove_volume(clone_);
    }

    const std::shared_ptr<StoredContents>& stored() const { return stored_; }
    std::string table_name() const { return stored_->name_of(table_); }

 private:
    const std::shared_ptr<StoredContents> stored_;  // shared with volumes that share pages
    const std::string clone_;
    const ContentsPart table_ = ContentsPart::table_of(clone_);
    const ContentsPart directory_{.kind = ContentsPart::Kind::directory};
    std::atomic<bool> forgotten_{false};
};

}  // namespace gpunbd::server
