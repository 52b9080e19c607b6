//! The seam to `s3s`: its operations, each handed to the part of the door that does it.
//!
//! Nothing is decided here, so that the library stays replaceable.

use s3s::{S3, S3Request, S3Response, S3Result, dto::*};

use super::Door;

/// The door as `s3s` calls it.
pub(super) struct Service(pub(super) Door);

macro_rules! operations {
    ($($name:ident => $does:ident($input:ident) -> $output:ident;)+) => {
        #[async_trait::async_trait]
        impl S3 for Service {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                self.0.$does(request).await
            })+
        }
    };
}

operations! {
    get_object => get(GetObjectInput) -> GetObjectOutput;
    head_object => head(HeadObjectInput) -> HeadObjectOutput;
    put_object => put(PutObjectInput) -> PutObjectOutput;
    copy_object => copy(CopyObjectInput) -> CopyObjectOutput;
    delete_object => delete(DeleteObjectInput) -> DeleteObjectOutput;
    delete_objects => delete_many(DeleteObjectsInput) -> DeleteObjectsOutput;
    get_object_attributes => object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput;
    get_object_torrent => torrent(GetObjectTorrentInput) -> GetObjectTorrentOutput;
    list_objects => list_v1(ListObjectsInput) -> ListObjectsOutput;
    list_objects_v2 => list_v2(ListObjectsV2Input) -> ListObjectsV2Output;
    list_object_versions => list_all_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput;
    create_multipart_upload => create_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput;
    upload_part => put_part(UploadPartInput) -> UploadPartOutput;
    upload_part_copy => copy_part(UploadPartCopyInput) -> UploadPartCopyOutput;
    complete_multipart_upload => complete(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput;
    abort_multipart_upload => abort(AbortMultipartUploadInput) -> AbortMultipartUploadOutput;
    list_parts => list_parts_of(ListPartsInput) -> ListPartsOutput;
    list_multipart_uploads => list_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput;
    create_bucket => make_bucket(CreateBucketInput) -> CreateBucketOutput;
    delete_bucket => drop_bucket(DeleteBucketInput) -> DeleteBucketOutput;
    head_bucket => bucket_is_there(HeadBucketInput) -> HeadBucketOutput;
    list_buckets => my_buckets(ListBucketsInput) -> ListBucketsOutput;
    get_bucket_location => location(GetBucketLocationInput) -> GetBucketLocationOutput;
    get_bucket_acl => bucket_acl(GetBucketAclInput) -> GetBucketAclOutput;
    put_bucket_acl => set_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput;
    get_bucket_policy => policy(GetBucketPolicyInput) -> GetBucketPolicyOutput;
    put_bucket_policy => set_policy(PutBucketPolicyInput) -> PutBucketPolicyOutput;
    delete_bucket_policy => drop_policy(DeleteBucketPolicyInput) -> DeleteBucketPolicyOutput;
    get_bucket_policy_status => policy_status(GetBucketPolicyStatusInput) -> GetBucketPolicyStatusOutput;
    get_bucket_tagging => bucket_tags(GetBucketTaggingInput) -> GetBucketTaggingOutput;
    put_bucket_tagging => set_bucket_tags(PutBucketTaggingInput) -> PutBucketTaggingOutput;
    delete_bucket_tagging => drop_bucket_tags(DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput;
    get_bucket_cors => cors(GetBucketCorsInput) -> GetBucketCorsOutput;
    put_bucket_cors => set_cors(PutBucketCorsInput) -> PutBucketCorsOutput;
    delete_bucket_cors => drop_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput;
    get_bucket_versioning => versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput;
    put_bucket_versioning => set_versioning(PutBucketVersioningInput) -> PutBucketVersioningOutput;
    get_bucket_lifecycle_configuration => lifecycle(GetBucketLifecycleConfigurationInput) -> GetBucketLifecycleConfigurationOutput;
    put_bucket_lifecycle_configuration => set_lifecycle(PutBucketLifecycleConfigurationInput) -> PutBucketLifecycleConfigurationOutput;
    delete_bucket_lifecycle => drop_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput;
    get_bucket_notification_configuration => notification(GetBucketNotificationConfigurationInput) -> GetBucketNotificationConfigurationOutput;
    put_bucket_notification_configuration => set_notification(PutBucketNotificationConfigurationInput) -> PutBucketNotificationConfigurationOutput;
    get_public_access_block => public_access(GetPublicAccessBlockInput) -> GetPublicAccessBlockOutput;
    put_public_access_block => set_public_access(PutPublicAccessBlockInput) -> PutPublicAccessBlockOutput;
    delete_public_access_block => drop_public_access(DeletePublicAccessBlockInput) -> DeletePublicAccessBlockOutput;
    get_bucket_ownership_controls => ownership(GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput;
    put_bucket_ownership_controls => set_ownership(PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput;
    delete_bucket_ownership_controls => drop_ownership(DeleteBucketOwnershipControlsInput) -> DeleteBucketOwnershipControlsOutput;
    get_bucket_request_payment => payment(GetBucketRequestPaymentInput) -> GetBucketRequestPaymentOutput;
    get_object_lock_configuration => lock_rules(GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput;
    put_object_lock_configuration => set_lock_rules(PutObjectLockConfigurationInput) -> PutObjectLockConfigurationOutput;
    get_object_acl => object_acl(GetObjectAclInput) -> GetObjectAclOutput;
    put_object_acl => set_object_acl(PutObjectAclInput) -> PutObjectAclOutput;
    get_object_tagging => object_tags(GetObjectTaggingInput) -> GetObjectTaggingOutput;
    put_object_tagging => set_object_tags(PutObjectTaggingInput) -> PutObjectTaggingOutput;
    delete_object_tagging => drop_object_tags(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput;
    get_object_retention => object_retention(GetObjectRetentionInput) -> GetObjectRetentionOutput;
    put_object_retention => set_retention(PutObjectRetentionInput) -> PutObjectRetentionOutput;
    get_object_legal_hold => object_hold(GetObjectLegalHoldInput) -> GetObjectLegalHoldOutput;
    put_object_legal_hold => set_hold(PutObjectLegalHoldInput) -> PutObjectLegalHoldOutput;
    restore_object => restore(RestoreObjectInput) -> RestoreObjectOutput;
}
