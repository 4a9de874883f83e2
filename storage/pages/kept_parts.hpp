// Keeps the descriptors of a volume's table and slabs, so that the volume outlives the process. The
// volume and its page pools share ownership. Volumes that share pages have such an object each; all
// of them keep the same slabs, as long as the table of any of these volumes is kept.
#pragma once

#include <cstdint>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

class KeptParts {
 public:
    // All functions may be called from any thread.
    //
    // Called before keep(), with the same contract.
    virtual bool keep_table(const OwnedFd& descriptor) noexcept = 0;
    // The same, for the SharedDirectory of all volumes that share the slabs.
    virtual bool keep_directory(const OwnedFd& descriptor) noexcept = 0;
    // `device` and `slab` are numbers within the volume. Blocks until the slab is kept. Returns
    // false if it may not be kept, or if an earlier slab of this number cannot be forgotten yet;
    // call drop() then.
    virtual bool keep(std::uint32_t device, std::uint32_t slab,
                      const OwnedFd& descriptor) noexcept = 0;
    // The slab need not be kept any more. At the latest, it is forgotten before its number is kept
    // again.
    virtual void drop(std::uint32_t device, std::uint32_t slab) noexcept = 0;
    // Whether the volume of these parts outlives the process. Otherwise it ends with its object.
    virtual bool keeps() const noexcept = 0;

 protected:
    ~KeptParts() = default;
};

}  // namespace gpunbd::storage
